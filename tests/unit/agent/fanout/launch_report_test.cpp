#include "agent/fanout/host_losses.hpp"

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

}  // namespace

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
