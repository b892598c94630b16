#include "agent/supervisor.hpp"
#include "tests/unit/rendezvous/membership_tools.hpp"

#include <catch2/catch.hpp>

#include <cerrno>
#include <csignal>
#include <optional>
#include <ostream>

// What a user sees must not depend on the number of nodes: the same rows are played on one node,
// where the supervisor decides, and on two, where the coordinator does.
using namespace acc;
using rendezvous::RunningJob;

namespace {

struct Row {
  const char* what;
  std::uint32_t max_restarts;
  std::optional<ExitStatus> failure;  ///< of rank 0
  int errnum = 0;                     ///< or: rank 0 can't be started
  int signal_before = 0;              ///< while all is well
  bool restart_asked = false;         ///< while the failed round ends, before that signal
  int signal_after = 0;               ///< while the failed round ends
  bool is_final = false;
  Millis lived{1'000};        ///< the failed round; from two seconds on it was healthy
  bool has_progress = false;  ///< where rank 1 is
  End expected{};
  bool restarts = false;
  bool has_progress_file = false;
  std::uint32_t max_no_progress = 0;
};

RestartPolicy policy_of(const Row& row) {
  RestartPolicy policy;
  policy.max_restarts = row.max_restarts;
  policy.healthy_after = Millis{2'000};
  policy.has_progress_file = row.has_progress_file;
  policy.max_no_progress = row.max_no_progress;
  return policy;
}

const Row kRows[] = {
    {.what = "a failure without a restart",
     .max_restarts = 0,
     .failure = Exited{7},
     .expected = {Outcome::failed, 7}},
    {.what = "a signal kills a worker",
     .max_restarts = 0,
     .failure = Signaled{SIGSEGV},
     .expected = {Outcome::failed, 139}},
    {.what = "a failure with a restart", .max_restarts = 1, .failure = Exited{7}, .restarts = true},
    {.what = "a restart is no use",
     .max_restarts = 1,
     .failure = Exited{7},
     .is_final = true,
     .expected = {Outcome::never_retry, 7}},
    {.what = "SIGTERM while all is well",
     .max_restarts = 1,
     .failure = std::nullopt,
     .signal_before = SIGTERM,
     .expected = {Outcome::stopped, 143}},
    {.what = "SIGTERM while a failed round ends, a restart left",
     .max_restarts = 1,
     .failure = Exited{7},
     .signal_after = SIGTERM,
     .expected = {Outcome::stopped, 143}},
    {.what = "SIGTERM while a failed round ends, no restart left",
     .max_restarts = 0,
     .failure = Exited{7},
     .signal_after = SIGTERM,
     .expected = {Outcome::failed, 7}},
    {.what = "a program is missing",
     .max_restarts = 1,
     .failure = std::nullopt,
     .errnum = ENOENT,
     .expected = {Outcome::cannot_start, 127}},
    {.what = "a program may not be executed",
     .max_restarts = 1,
     .failure = std::nullopt,
     .errnum = EACCES,
     .expected = {Outcome::cannot_start, 126}},
    {.what = "a program is being written",
     .max_restarts = 1,
     .failure = std::nullopt,
     .errnum = ETXTBSY,
     .expected = {Outcome::cannot_start, 71}},
    {.what = "a signal of --preempt_signals",
     .max_restarts = 1,
     .failure = std::nullopt,
     .signal_before = SIGUSR1,
     .expected = {Outcome::preempted, 75}},
    {.what = "a restart is asked for while a failed round ends, none left",
     .max_restarts = 0,
     .failure = Exited{7},
     .restart_asked = true,
     .restarts = true},
    {.what = "and then SIGTERM",
     .max_restarts = 0,
     .failure = Exited{7},
     .restart_asked = true,
     .signal_after = SIGTERM,
     .expected = {Outcome::failed, 7}},
    {.what = "and then SIGTERM, a restart left",
     .max_restarts = 1,
     .failure = Exited{7},
     .restart_asked = true,
     .signal_after = SIGTERM,
     .expected = {Outcome::stopped, 143}},
    {.what = "a healthy round, in which the progress file didn't change",
     .max_restarts = 9,
     .failure = Exited{7},
     .lived = Millis{3'000},
     .expected = {Outcome::no_progress, 93},
     .has_progress_file = true,
     .max_no_progress = 1},
    {.what = "a healthy round without such a file",
     .max_restarts = 9,
     .failure = Exited{7},
     .lived = Millis{3'000},
     .restarts = true,
     .max_no_progress = 1},
    {.what = "a short round with progress",
     .max_restarts = 9,
     .failure = Exited{7},
     .has_progress = true,
     .restarts = true,
     .has_progress_file = true,
     .max_no_progress = 1},
};

/// Nothing: a restart follows.
std::optional<End> on_one_node(const Row& row) {
  using namespace agent;
  GroupState group;
  group.size = 2;
  group.restart = policy_of(row);
  group.stop.preempt_signals = {SIGUSR1};
  Instant now{std::chrono::hours{1}};
  step(group, Began{now});
  if (row.errnum != 0) {
    step(group, StartFailed{{LocalRank{0}, row.errnum, "exec"}, now});
    now += std::chrono::minutes{1};  // what may work a moment later was tried for long enough
    group.start_retry_until = now;
    if (row.restart_asked) step(group, RestartAsked{now});
    if (row.signal_after != 0) step(group, SignalArrived{row.signal_after, now});
  } else {
    step(group, RoundStarted{now});
    if (row.signal_before != 0) step(group, SignalArrived{row.signal_before, now});
    const auto status = row.failure.value_or(Signaled{row.signal_before});
    now += row.lived;
    step(group, WorkerExited{LocalRank{0}, status, now, row.is_final});
    if (row.restart_asked) step(group, RestartAsked{now});
    if (row.signal_after != 0) step(group, SignalArrived{row.signal_after, now});
    step(group, WorkerExited{LocalRank{1}, Signaled{SIGTERM}, now});
  }
  for (const auto& action : step(group, Emptied{now, row.has_progress})) {
    if (const auto* finish = std::get_if<Finish>(&action)) return finish->end;
  }
  CHECK_FALSE(group.restart_is_due);  // it began
  return std::nullopt;
}

std::optional<End> on_two_nodes(const Row& row) {
  using namespace rendezvous;
  auto options = options_for(2, 2);
  options.policy->restart = policy_of(row);
  options.policy->preempt_signals = {SIGUSR1};
  RunningJob job{options, 2};
  const auto [a, b] = std::pair{job.peers[0], job.peers[1]};
  if (row.signal_before != 0) job.says(a, SignalRequest{row.signal_before});
  job.pass(row.lived - kSecond);  // one has passed
  // What a worker makes of a signal is no failure.
  if (row.signal_before == 0 && (row.failure || row.errnum != 0)) {
    Failure failure;
    failure.is_final = row.is_final;
    if (row.errnum != 0) {
      failure.kind = Failure::Kind::cannot_start;
      failure.code = row.errnum;
    } else if (const auto* killed = std::get_if<Signaled>(&*row.failure)) {
      failure.kind = Failure::Kind::signaled;
      failure.code = killed->signo;
    } else {
      failure.code = std::get<Exited>(*row.failure).code;
    }
    job.says(a, WorkerFailed{failure});
  }
  if (row.restart_asked) job.says(b, RestartRequest{});
  if (row.signal_after != 0) job.says(b, SignalRequest{row.signal_after});
  job.says(b, Stopped{row.has_progress});
  job.all_stopped();
  if (!job.over) {
    CHECK(job.phase() == MembershipPhase::assigning);
    return std::nullopt;
  }
  return End{job.over->outcome, job.over->exit_code};
}

}  // namespace

TEST_CASE("a job ends the same on one node and on several", "[agent][rendezvous][round_end]") {
  for (const auto& row : kRows) {
    INFO(row.what);
    const auto one = on_one_node(row);
    const auto two = on_two_nodes(row);
    REQUIRE(one.has_value() == !row.restarts);
    REQUIRE(two.has_value() == !row.restarts);
    if (row.restarts) continue;
    CHECK(to_string(one->outcome) == to_string(row.expected.outcome));
    CHECK(one->exit_code == row.expected.exit_code);
    CHECK(to_string(two->outcome) == to_string(row.expected.outcome));
    CHECK(two->exit_code == row.expected.exit_code);
  }
}

TEST_CASE("a job ends the same on one node and on several, whatever comes together",
          "[agent][rendezvous][round_end]") {
  const std::optional<ExitStatus> none;
  const std::pair<std::optional<ExitStatus>, int> kFailures[] = {
      {Exited{7}, 0}, {Signaled{SIGSEGV}, 0}, {none, ENOENT}, {none, EAGAIN}};
  std::size_t rows = 0;
  for (const auto& [failure, errnum] : kFailures)
    for (const int before : {0, SIGTERM, SIGUSR1})
      for (const int after : {0, SIGTERM, SIGUSR1})
        for (unsigned bits = 0; bits < 128; ++bits) {
          const auto bit = [bits](unsigned number) { return (bits >> number & 1U) != 0; };
          if (before != 0 && errnum != 0) continue;  // it came before the start
          const Row row{.what = "",
                        .max_restarts = bit(0) ? 1U : 0U,
                        .failure = failure,
                        .errnum = errnum,
                        .signal_before = before,
                        .restart_asked = bit(1),
                        .signal_after = after,
                        .is_final = bit(2),
                        .lived = Millis{bit(3) ? 3'000 : 1'000},
                        .has_progress = bit(4),
                        .has_progress_file = bit(5),
                        .max_no_progress = bit(6) ? 1U : 0U};
          const auto one = on_one_node(row);
          const auto two = on_two_nodes(row);
          ++rows;
          if (one == two) continue;
          const auto words = [](const std::optional<End>& end) {
            return end ? std::string{to_string(end->outcome)} + " " + std::to_string(end->exit_code)
                       : "restart";
          };
          UNSCOPED_INFO("failure " << (failure ? shell_code(*failure) : 0) << " errnum " << errnum
                                   << " signals " << before << ", " << after << " bits " << bits);
          CHECK(words(one) == words(two));
        }
  CHECK(rows > 3'000);
}
