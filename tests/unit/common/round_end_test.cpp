#include "common/round_end.hpp"

#include <catch2/catch.hpp>

#include <cerrno>
#include <csignal>
#include <vector>

using namespace acc;

namespace {

const std::vector<int> kPreempt{SIGUSR1};

FailedRound failed(std::optional<ExitStatus> status) { return {status, Millis{0}, false, 0.5}; }

/// With one restart left.
RoundEnd after(const RoundResult& round, int signo = 0) {
  RestartPolicy policy;
  policy.max_restarts = 1;
  RestartLedger ledger;
  return what_follows(policy, ledger, round, stop_request(signo, kPreempt));
}
/// With none left.
End last(const RoundResult& round, int signo = 0) {
  RestartLedger ledger;
  return std::get<End>(what_follows({}, ledger, round, stop_request(signo, kPreempt)));
}
bool restarts(const RoundEnd& next) { return std::holds_alternative<Restart>(next); }

}  // namespace

TEST_CASE("what follows a round", "[common][round_end]") {
  SECTION("all workers exited with 0") {
    CHECK(std::get<End>(after(RoundSucceeded{})) == End{Outcome::succeeded, 0});
  }
  SECTION("a failure is followed by a restart while one is left") {
    CHECK(restarts(after(failed(Exited{3}))));
    CHECK(restarts(after(failed(std::nullopt))));
  }
  SECTION("without a restart the job has the code of the first failed worker") {
    CHECK(last(failed(Exited{3})) == End{Outcome::failed, 3});
    CHECK(last(failed(Signaled{SIGSEGV})) == End{Outcome::failed, 139});
  }
  SECTION("… and of a lost node its own code") {
    CHECK(last(failed(std::nullopt)) == End{Outcome::failed, 69});
  }
  SECTION("a worker may say that a restart is no use") {
    auto round = failed(Exited{3});
    round.is_final = true;
    CHECK(std::get<End>(after(round)) == End{Outcome::never_retry, 3});
  }
}

TEST_CASE("a signal while a failed round ends", "[common][round_end]") {
  SECTION("takes the place of the restart") {
    CHECK(std::get<End>(after(failed(Exited{3}), SIGTERM)) == End{Outcome::stopped, 143});
    CHECK(std::get<End>(after(failed(Exited{3}), SIGUSR1)) == End{Outcome::preempted, 75});
  }
  SECTION("doesn't hide a failure that no restart would have followed") {
    CHECK(last(failed(Exited{3}), SIGTERM) == End{Outcome::failed, 3});
  }
  SECTION("decides the end of a round that was well until it came") {
    CHECK(last(RoundInterrupted{}, SIGINT) == End{Outcome::stopped, 130});
  }
}

TEST_CASE("the code of a job that can't start", "[common][round_end]") {
  for (const int errnum : {ENOENT, ENOTDIR})
    CHECK(last(RoundUnstartable{errnum}) == End{Outcome::cannot_start, 127});
  for (const int errnum : {EAGAIN, ENOMEM, EMFILE, ENFILE, ETXTBSY})
    CHECK(last(RoundUnstartable{errnum}) == End{Outcome::cannot_start, 71});
  for (const int errnum : {EACCES, ENOEXEC, EPERM})
    CHECK(last(RoundUnstartable{errnum}) == End{Outcome::cannot_start, 126});
  SECTION("an unfit node says so") {
    CHECK(last(RoundUnstartable{kUnfitNode}) == End{Outcome::unfit, 74});
  }
  SECTION("a restart is not spent on it") {
    CHECK(std::get<End>(after(RoundUnstartable{EACCES})).exit_code == 126);
  }
  SECTION("a signal ends the tries of what may work a moment later, and hides nothing else") {
    CHECK(last(RoundUnstartable{EAGAIN}, SIGINT) == End{Outcome::stopped, 130});
    CHECK(last(RoundUnstartable{ENOENT}, SIGINT) == End{Outcome::cannot_start, 127});
  }
}

TEST_CASE("a refilled budget never reads as 'restart 5 of 3'", "[common][round_end]") {
  RestartPolicy policy;
  policy.max_restarts = 3;
  policy.refill_after = Millis{1'000};
  RestartLedger ledger;
  for (int round = 0; round < 5; ++round) {
    auto result = failed(Exited{1});
    result.lived = Millis{1'000};
    REQUIRE(restarts(what_follows(policy, ledger, result, {})));
    ++ledger.restarts;
    CHECK(restart_words(ledger, policy.max_restarts) == "restart 1 of 3");
  }
}

TEST_CASE("signals that end the job", "[common][round_end]") {
  for (const int signo : {SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1})
    CHECK(ends_job(signo, kPreempt));
  for (const int signo : {SIGUSR2, SIGWINCH}) CHECK_FALSE(ends_job(signo, kPreempt));
}
