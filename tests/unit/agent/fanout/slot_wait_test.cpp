#include "agent/fanout/slot_wait.hpp"

#include "agent/fanout/orders.hpp"

#include <catch2/catch.hpp>

#include <csignal>

using namespace acc;
using namespace acc::agent;
using Catch::Matchers::Contains;

namespace {

using Hosts = std::initializer_list<std::size_t>;

HostTrouble exited_with(int code) { return {HostTrouble::What::exited, Exited{code}, 0, {}}; }

/// Those that are neither full nor away have answered.
FanOutState after_a_try(Hosts full, Hosts away = {}) {
  auto state = fan_out_over(3, {});
  state.has_failed = full.size() + away.size() > 0;
  for (const auto host : full) state.hosts[host].trouble = exited_with(kNoRoomExit);
  for (const auto host : away) state.hosts[host].trouble = exited_with(kAwayExit);
  for (auto& host : state.hosts) {
    if (!host.trouble) host.daemon = "d";
  }
  return state;
}

}  // namespace

TEST_CASE("a launch waits only where nothing but room is missing", "[agent][fanout]") {
  CHECK(SlotWait{}.is_due(after_a_try({1})));
  CHECK(SlotWait{}.is_due(after_a_try({0, 2})));
  CHECK_FALSE(SlotWait{}.is_due(after_a_try({})));
  auto other = after_a_try({1});
  other.hosts[2].trouble = exited_with(1);
  CHECK_FALSE(SlotWait{}.is_due(other));
  other.hosts[2].trouble = {HostTrouble::What::silent, {}, 0, {}};
  other.hosts[2].daemon.clear();
  CHECK_FALSE(SlotWait{}.is_due(other));
  auto stopped = after_a_try({1});
  stopped.stop_signal = SIGINT;
  CHECK_FALSE(SlotWait{}.is_due(stopped));
}

TEST_CASE("a launch that waited for room gave up when a daemon restarted or a host was drained",
          "[agent][fanout]") {
  SlotWait wait;
  CHECK_FALSE(wait.is_due(after_a_try({1}, {2})));  // never seen: is its name right?
  CHECK(wait.is_due(after_a_try({1})));
  CHECK(wait.is_due(after_a_try({1}, {2})));
  CHECK(wait.is_due(after_a_try({}, {2})));
  CHECK(wait.is_due(after_a_try({}, {0, 1, 2})));  // the acc-agent here
  auto silent = after_a_try({1});
  silent.hosts[2] = {};
  silent.hosts[2].trouble = {HostTrouble::What::silent, {}, 0, {}};
  CHECK(wait.is_due(silent));
  auto refused = after_a_try({1}, {2});
  refused.hosts[0].trouble = exited_with(77);
  CHECK_FALSE(wait.is_due(refused));
  // Whether its part was made is not known: a second one would be another node.
  auto unknown = after_a_try({});
  unknown.has_failed = true;
  unknown.hosts[2].trouble = exited_with(kAwayExit);
  CHECK_FALSE(wait.is_due(unknown));
}

TEST_CASE("a host that is away is told as such, and not as full", "[agent][fanout]") {
  const std::vector<std::string> names{"a", "b", "c"};
  const std::vector<std::string> why{"", "no room" + std::string{kNoRoomCure},
                                     "connection refused"};
  SlotWait wait;
  CHECK(wait.tell(after_a_try({1}, {2}), names, why) ==
        "waiting for room on b (b: no room) and for c (c: connection refused); no slot is held "
        "meanwhile, Ctrl-C ends the wait");
  CHECK_FALSE(wait.tell(after_a_try({1}, {2}), names, why));
  CHECK(wait.tell(after_a_try({}, {1, 2}), names, {"", "this node is drained: x", ""}) ==
        "waiting for b, c (b: this node is drained: x); no slot is held meanwhile, Ctrl-C ends the "
        "wait");
}

TEST_CASE("what a launch waits for is told once, and when it changes", "[agent][fanout]") {
  const std::vector<std::string> names{"a", "b", "c"};
  const std::vector<std::string> why{"", "no room: free: 0 slots" + std::string{kNoRoomCure},
                                     "no room"};
  SlotWait wait;
  const auto told = wait.tell(after_a_try({1}), names, why);
  REQUIRE(told);
  CHECK(*told ==
        "waiting for room on b (b: no room: free: 0 slots); no slot is held meanwhile, Ctrl-C ends "
        "the wait");
  CHECK_FALSE(wait.tell(after_a_try({1}), names, why));
  CHECK_THAT(wait.tell(after_a_try({1, 2}), names, why).value_or(""), Contains("on b, c (b: "));
}

TEST_CASE(
    "two launches that took slots from each other ask at different times, and not for ever "
    "each second",
    "[agent][fanout]") {
  SlotWait wait;
  std::vector<long> pauses;
  for (int i = 0; i < 6; ++i) pauses.push_back(wait.pause(0.5).count());
  CHECK(pauses == std::vector<long>{1000, 2000, 4000, 8000, 15000, 15000});
  CHECK(wait.pause(0).count() == 11250);
  CHECK(wait.pause(0.999).count() > 18700);
}
