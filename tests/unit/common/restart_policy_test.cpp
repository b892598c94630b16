#include "common/restart_policy.hpp"

#include <catch2/catch.hpp>

#include <csignal>

using namespace acc;
using std::chrono::minutes;
using std::chrono::seconds;

namespace {

FailedRound failed(ExitStatus status, Millis lived = Millis{0}, bool progress = false) {
  return {status, lived, progress, 0.5};
}

RestartVerdict verdict(const RestartPolicy& policy, RestartLedger& ledger,
                       const FailedRound& round) {
  return decide_restart(policy, ledger, round).verdict;
}

}  // namespace

TEST_CASE("so many rounds are tried again as the policy has restarts", "[common][restart]") {
  for (const std::uint32_t budget : {0U, 1U, 3U}) {
    RestartPolicy policy;
    policy.max_restarts = budget;
    RestartLedger ledger;
    for (std::uint32_t i = 0; i < budget; ++i) {
      CHECK(verdict(policy, ledger, failed(Exited{1})) == RestartVerdict::restart);
      CHECK(ledger.budget_used == i + 1);
      CHECK(ledger.restarts == 0);  // counted by the caller, when the round really starts
    }
    CHECK(verdict(policy, ledger, failed(Exited{1})) == RestartVerdict::spent);
    CHECK(ledger.budget_used == budget);
  }
}

TEST_CASE("the delay grows while rounds fail quickly and starts again after a healthy one",
          "[common][restart]") {
  RestartPolicy policy;
  policy.max_restarts = 10;
  RestartLedger ledger;
  for (const std::int64_t ms : {0, 1000, 2000})
    CHECK(decide_restart(policy, ledger, failed(Exited{1})).delay == Millis{ms});
  CHECK(decide_restart(policy, ledger, failed(Exited{1}, minutes{1})).delay == Millis{0});
  CHECK(ledger.quick_failures == 1);
}

TEST_CASE("a lost node is no exit code: no class of codes covers it", "[common][restart]") {
  RestartPolicy policy;
  policy.max_restarts = 1;
  policy.never_retry = {{0, 255}};
  RestartLedger ledger;
  CHECK(verdict(policy, ledger, {std::nullopt, Millis{0}, false, 0.5}) == RestartVerdict::restart);
  CHECK(verdict(policy, ledger, failed(Exited{1})) == RestartVerdict::never_retry);
}

TEST_CASE("a code that is never retried is not booked", "[common][restart]") {
  RestartPolicy policy;
  policy.max_restarts = 5;
  policy.never_retry = {{2, 2}, {139, 139}};
  RestartLedger ledger;
  CHECK(verdict(policy, ledger, failed(Signaled{SIGSEGV})) == RestartVerdict::never_retry);
  CHECK(ledger == RestartLedger{});
}

TEST_CASE("rounds without progress in a row are hopeless, one with progress starts the count again",
          "[common][restart]") {
  RestartPolicy policy;
  policy.max_restarts = 100;
  policy.max_no_progress = 2;
  policy.has_progress_file = true;
  RestartLedger ledger;
  CHECK(verdict(policy, ledger, failed(Exited{1})) == RestartVerdict::restart);
  CHECK(verdict(policy, ledger, failed(Exited{1}, seconds{1}, true)) == RestartVerdict::restart);
  CHECK(ledger.without_progress == 0);
  CHECK(verdict(policy, ledger, failed(Exited{1})) == RestartVerdict::restart);
  CHECK(verdict(policy, ledger, failed(Exited{1}, minutes{5})) == RestartVerdict::no_progress);
}

TEST_CASE("a healthy round is progress where no file tells it", "[common][restart]") {
  RestartPolicy policy;
  policy.max_restarts = 100;
  policy.max_no_progress = 1;
  RestartLedger ledger;
  CHECK(verdict(policy, ledger, failed(Exited{1}, minutes{1})) == RestartVerdict::restart);
  CHECK(verdict(policy, ledger, failed(Exited{1}, seconds{59})) == RestartVerdict::no_progress);
}

TEST_CASE("a reported checkpoint is progress without a file, too", "[common][restart]") {
  RestartPolicy policy;
  policy.max_restarts = 9;
  policy.max_no_progress = 2;
  RestartLedger ledger;
  for (int i = 0; i < 5; ++i)
    CHECK(verdict(policy, ledger, failed(Exited{1}, seconds{1}, true)) == RestartVerdict::restart);
  CHECK(verdict(policy, ledger, failed(Exited{1})) == RestartVerdict::restart);
  CHECK(verdict(policy, ledger, failed(Exited{1})) == RestartVerdict::no_progress);
}

TEST_CASE("healthy time gives restarts back, never more than were used", "[common][restart]") {
  RestartPolicy policy;
  policy.max_restarts = 3;
  policy.refill_after = minutes{10};
  RestartLedger ledger;
  ledger.budget_used = 3;
  CHECK(verdict(policy, ledger, failed(Exited{1}, minutes{9})) == RestartVerdict::spent);
  CHECK(verdict(policy, ledger, failed(Exited{1}, minutes{25})) == RestartVerdict::restart);
  CHECK(ledger.budget_used == 2);
  CHECK(verdict(policy, ledger, failed(Exited{1}, minutes{1000})) == RestartVerdict::restart);
  CHECK(ledger.budget_used == 1);
}

TEST_CASE("delays are 0, 1, 2, 4 … s with jitter up to the maximum", "[common][restart]") {
  RestartPolicy policy;
  policy.jitter = 0.1;
  const std::int64_t expected[] = {0, 1000, 2000, 4000, 8000, 16'000, 32'000, 60'000, 60'000};
  for (std::uint32_t i = 0; i < std::size(expected); ++i) {
    CHECK(restart_delay(policy, i, 0.5) == Millis{expected[i]});
    CHECK(restart_delay(policy, i, 0.0) == Millis{expected[i] * 9 / 10});
    CHECK(restart_delay(policy, i, 1.0) == Millis{expected[i] * 11 / 10});
  }
  CHECK(restart_delay(policy, 4'000'000'000U, 0.5) == policy.delay_max);
  policy.delay_base = Millis{0};
  CHECK(restart_delay(policy, 5, 0.7) == Millis{0});
}

TEST_CASE("a signal counts as 128 + its number in a class of codes", "[common][restart]") {
  CHECK(in_classes({{139, 139}}, Signaled{SIGSEGV}));
  CHECK(in_classes({{2, 2}, {64, 78}}, Exited{65}));
  CHECK_FALSE(in_classes({{2, 2}, {64, 78}}, Exited{79}));
  CHECK_FALSE(in_classes({}, Exited{1}));
}

TEST_CASE("while a round runs it is known whether a restart may follow", "[common][restart]") {
  RestartPolicy policy;
  RestartLedger ledger;
  CHECK_FALSE(may_restart(policy, ledger));
  policy.refill_after = Millis{1'000};
  CHECK_FALSE(may_restart(policy, ledger));  // none to give back
  policy.max_restarts = 2;
  policy.refill_after = Millis{0};
  ledger.restarts = 5;  // asked for, or given back
  ledger.budget_used = 1;
  CHECK(may_restart(policy, ledger));
  ledger.budget_used = 2;
  CHECK_FALSE(may_restart(policy, ledger));
  policy.refill_after = Millis{1'000};
  CHECK(may_restart(policy, ledger));
}
