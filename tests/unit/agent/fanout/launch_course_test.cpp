#include "agent/fanout/launch_course.hpp"

#include <catch2/catch.hpp>

#include <string>

using namespace acc;
using namespace acc::agent;

namespace {

FanOutState three_hosts(FanOutPhase phase) {
  auto state = fan_out_over(3, {});
  state.phase = phase;
  return state;
}

std::string started(int workers) {
  return R"({"event": "round_started", "workers": )" + std::to_string(workers) + "}";
}

std::string progress(int rank, int step, const std::string& rate) {
  return R"({"event": "progress", "rank": )" + std::to_string(rank) + R"(, "step": )" +
         std::to_string(step) + R"(, "steps_per_second": )" + rate + "}";
}

}  // namespace

TEST_CASE("the status line of several hosts says what is waited for", "[agent][fanout]") {
  LaunchCourse course{{"a", "b", "c"}};
  auto state = three_hosts(FanOutPhase::starting);
  state.hosts[1].phase = HostPhase::prepared;
  CHECK(course.status(state, Millis{6'200}) == "1 of 3 hosts are ready, 7 s");
  state.phase = FanOutPhase::running;
  CHECK(course.status(state, Millis{3'000}) == "waiting for the hosts to start workers, 3 s");
  for (const HostIndex host : {0U, 1U, 2U}) course.take(host, started(2));
  CHECK(course.status(state, Millis{60'000}).empty());  // nothing is known of their progress
  course.take(1, R"({"event": "failure", "cause": "exited with code 7"})");
  course.take(1, R"({"event": "worker_ended"})");
  CHECK(course.status(state, Millis{0}) == "stopping, 5 of 6 workers left");
  for (const HostIndex host : {0U, 2U}) course.take(host, R"({"event": "stop_ordered", "reason": "rank 2 exited\nwith code 7"})");
  for (const HostIndex host : {0U, 0U, 1U, 2U, 2U}) course.take(host, R"({"event": "worker_ended"})");
  const auto words = course.status(state, Millis{61'000});
  CHECK(words.starts_with("waiting for the hosts to start workers, 1 min 1 s, after: rank 2 exited"));
  CHECK(words.find('\n') == std::string::npos);
  course.take(0, started(2));
  CHECK(course.status(state, Millis{0}).empty());
  course.take(0, R"({"event": "job_ended"})");
  CHECK(course.status(state, Millis{4'000}) == "waiting for b, c to end, 4 s");
  state.phase = FanOutPhase::finished;
  CHECK(course.status(state, Millis{0}).empty());
}

TEST_CASE("a host whose workers have succeeded waits for those of others", "[agent][fanout]") {
  LaunchCourse course{{"a", "b"}};
  for (const HostIndex host : {0U, 1U}) course.take(host, started(2));
  CHECK(course.is_at_work(0));
  CHECK_FALSE(course.is_ending(0));
  for (int i = 0; i < 2; ++i) course.take(0, R"({"event": "worker_ended", "exit_code": 0})");
  CHECK(course.is_ending(0));
  CHECK_FALSE(course.is_at_work(0));
  course.take(1, R"({"event": "worker_ended", "exit_code": null, "signal": "SIGKILL"})");
  course.take(1, R"({"event": "stopping"})");
  CHECK(course.is_ending(1));
  course.take(1, R"({"event": "worker_ended", "exit_code": 0})");
  CHECK_FALSE(course.is_ending(1));
  course.take(0, started(2));
  CHECK(course.is_at_work(0));
}

TEST_CASE("the progress of a job on several hosts is that of its slowest rank", "[agent][fanout]") {
  LaunchCourse course{{"a", "b"}};
  const auto state = three_hosts(FanOutPhase::running);
  for (const HostIndex host : {0U, 1U}) course.take(host, started(4));
  course.take(0, progress(1, 120, "null"));
  CHECK(course.status(state, Millis{0}) == "step 120, slowest: rank 1 on a");
  course.take(1, progress(6, 119, "3.14159"));
  CHECK(course.status(state, Millis{0}) == "step 119, 3.14 steps/s, slowest: rank 6 on b");
  const auto changes = course.changes();
  course.take(1, started(4));  // a round of its own: what was known is of the last one
  CHECK(course.status(state, Millis{0}) == "step 120, slowest: rank 1 on a");
  CHECK(course.changes() == changes);
}

TEST_CASE("the wait for an unreachable host had no name and no deadline", "[agent][fanout]") {
  LaunchCourse course{{"n2", "n3"}};
  auto state = fan_out_over(2, {});
  state.phase = FanOutPhase::running;
  for (auto& host : state.hosts) host.phase = HostPhase::running;
  for (const HostIndex host : {0U, 1U}) course.take(host, started(4));
  course.take(0, R"({"event": "job_ended"})");
  CHECK(course.status(state, Millis{2'000}) == "waiting for n3 to end, 2 s");  // it was empty
  const Instant since{};
  state.hosts[1].silence = HostSilence{since, since + Millis{60'000}};
  CHECK(course.status(state, Millis{2'000}, since + Millis{20'000}) ==
        "waiting for n3: no answer for 20 s, given up after 1 min");
  state.hosts[1].phase = HostPhase::gone;
  CHECK(course.status(state, Millis{2'000}, since).find("n3") == std::string::npos);
}

TEST_CASE("after Ctrl-C the status line went on with steps", "[agent][fanout]") {
  LaunchCourse course{{"a", "b"}};
  auto state = fan_out_over(2, {});
  state.phase = FanOutPhase::running;
  for (auto& host : state.hosts) host.phase = HostPhase::running;
  for (const HostIndex host : {0U, 1U}) course.take(host, started(4));
  course.take(0, progress(1, 120, "3"));
  state.stop_signal = 2;
  CHECK(course.status(state, Millis{0}) == "stopping, 8 of 8 workers left, 0 s");
  course.take(1, R"({"event": "worker_ended"})");
  CHECK(course.status(state, Millis{7'000}) == "stopping, 7 of 8 workers left, 7 s");
  state.phase = FanOutPhase::leaving;
  state.hosts[0].phase = HostPhase::gone;
  CHECK(course.status(state, Millis{8'000}) == "stopping, waiting for 1 host to end, 8 s");
  state.phase = FanOutPhase::finished;
  CHECK(course.status(state, Millis{8'000}).empty());
}

TEST_CASE("what is no event changes nothing", "[agent][fanout]") {
  LaunchCourse course{{"a"}};
  for (const std::string_view text : {"", "{", "[]", "null", "{}", R"({"event": 1})", R"({"event": "later"})",
                                      R"({"event": "progress", "step": "x", "rank": -1})"}) {
    course.take(0, text);
    course.take(7, text);
  }
  CHECK(course.changes() == 0);
}
