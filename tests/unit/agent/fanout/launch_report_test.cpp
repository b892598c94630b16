#include "agent/fanout/launch_report.hpp"

#include <catch2/catch.hpp>

#include <csignal>

using namespace acc;
using namespace acc::agent;
using Catch::Matchers::Contains;

namespace {

/// Host a is this machine, with its own daemon; b is reached through it.
ClusterLaunch two_hosts() {
  ClusterLaunch launch;
  launch.hosts = {{"a", {}, ""}, {"b", {}, "b"}};
  return launch;
}

FanOutState both_ended() {
  auto state = fan_out_over(2, {});
  for (auto& host : state.hosts) {
    host.job = "j1";
    host.exit_code = 0;
  }
  return state;
}

LostOutput one_line_of_each() {
  return {{{1, 10, "stdout", "full"}}, {{2, 20, "log files in /l", "full"}}};
}

const std::string kStoppedThere =
    R"({"verdict": "stopped", "exit_code": 143, "stop_signal": "SIGTERM", "first_failure": null,)"
    R"( "reason": "SIGTERM to the agent on a", "losses": []})";

}  // namespace

TEST_CASE("a report said that the user stopped the job where another host's part had ended",
          "[agent][fanout]") {
  auto state = both_ended();
  state.hosts[1].exit_code = 74;
  state.missed = 1;
  state.is_rest_told = true;
  REQUIRE(exit_code_in(kStoppedThere) == 143);
  const auto end = end_to_report(state, {"a", "b"}, 74, 143);
  REQUIRE(end.has_value());
  const auto report = with_end(kStoppedThere, *end).value();
  CHECK_THAT(report, Contains(R"("verdict": "unfit")"));
  CHECK_THAT(report, Contains(R"("exit_code": 74)"));
  CHECK_THAT(report, Contains(R"("stop_signal": null)"));
  CHECK_THAT(report, Contains("b: its part has ended with exit code 74 (unfit)"));
  CHECK(end_to_report(state, {"a", "b"}, 70, 143).value().verdict == "agent_lost");
  CHECK(end_to_report(state, {"a", "b"}, 69, 143).value().verdict == "nodes_missing");
  CHECK(end_to_report(state, {"a", "b"}, 73, 143).value().verdict == "cannot_start");
  CHECK(end_to_report(state, {"a", "b"}, 7, 143).value().verdict == "failed");
}

TEST_CASE("a report that is right stays as it is", "[agent][fanout]") {
  auto state = both_ended();
  state.missed = 1;
  state.is_rest_told = true;
  CHECK_FALSE(end_to_report(state, {"a", "b"}, 69, 69).has_value());
  CHECK_FALSE(end_to_report(both_ended(), {"a", "b"}, 1, 0).has_value());
  CHECK_FALSE(exit_code_in("{\"verdict\": \"running\"}").has_value());
  CHECK_FALSE(exit_code_in("[1").has_value());
  CHECK_FALSE(with_end("[1", {}).has_value());
}

TEST_CASE("a user who didn't wait for all hosts reads that the job was stopped", "[agent][fanout]") {
  auto state = both_ended();
  state.stop_signal = SIGINT;
  const auto end = end_to_report(state, {"a", "b"}, 130, 70).value();
  CHECK(end.verdict == "stopped");
  CHECK(end.stop_signal == SIGINT);
  CHECK(end.reason == "SIGINT to acc-launch");
  state.hosts[1].exit_code.reset();
  state.missed = 0;  // a host that was missed meanwhile changes nothing
  state.is_rest_told = true;
  const auto left = end_to_report(state, {"a", "b"}, 130, 70).value();
  CHECK(left.verdict == "stopped");
  CHECK(left.reason == "SIGINT to acc-launch, which didn't wait for the end of all hosts");
}

TEST_CASE("what the launching acc-launch lost itself was missing in the report", "[agent][fanout]") {
  const auto lost = own_losses_to_report({{"stdout", "its reader went away", 120, 9}});
  REQUIRE(lost.size() == 1);
  CHECK(lost[0].where == "acc-launch --hosts: stdout");
  CHECK(lost[0].lines == 9);
}

TEST_CASE("of hosts that have ended only what their daemons tell was lost", "[agent][fanout]") {
  const auto lost = with_output_left_there(one_line_of_each(), two_hosts(), both_ended());
  CHECK(lost[0].size() == 1);
  CHECK(lost[1].size() == 1);
}

TEST_CASE("of a host that was given up it is said how its output is read", "[agent][fanout]") {
  auto state = both_ended();
  state.hosts[0].exit_code.reset();
  state.hosts[1].exit_code.reset();
  const auto lost = with_output_left_there({{}, {}}, two_hosts(), state);
  REQUIRE(lost[0].size() == 1);
  CHECK_THAT(lost[0][0].why, Contains("acc-ctl logs j1"));
  REQUIRE(lost[1].size() == 1);
  CHECK_THAT(lost[1][0].why, Contains("acc-ctl --node b logs j1"));
}

TEST_CASE("a job that goes on without us has lost nothing", "[agent][fanout]") {
  auto state = both_ended();
  state.hosts[1].exit_code.reset();
  state.is_detached = true;
  CHECK(with_output_left_there({{}, {}}, two_hosts(), state)[1].empty());
  state.is_detached = false;
  state.left = 130;  // acc-ctl attach was left
  CHECK(with_output_left_there({{}, {}}, two_hosts(), state)[1].empty());
}

TEST_CASE("the report's own host isn't counted twice", "[agent][fanout]") {
  auto state = both_ended();
  auto losses = losses_to_report(one_line_of_each(), two_hosts(), state);
  REQUIRE(losses.size() == 1);
  CHECK(losses[0].where == "b: log files in /l");
  CHECK(losses[0].lines == 2);
  CHECK(losses[0].bytes == 20);
  state.hosts[0].exit_code.reset();  // given up: it writes no report here
  losses = losses_to_report(one_line_of_each(), two_hosts(), state);
  REQUIRE(losses.size() == 2);
  CHECK(losses[0].where == "a: stdout");
}
