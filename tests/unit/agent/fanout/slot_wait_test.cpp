#include "agent/fanout/slot_wait.hpp"

#include "agent/fanout/orders.hpp"

#include <catch2/catch.hpp>

#include <csignal>

using namespace acc;
using namespace acc::agent;
using Catch::Matchers::Contains;

namespace {

FanOutState after_a_try(std::initializer_list<std::size_t> full) {
  auto state = fan_out_over(3, {});
  state.has_failed = full.size() > 0;
  for (const auto host : full)
    state.hosts[host].trouble = {HostTrouble::What::exited, Exited{kNoRoomExit}, 0, {}};
  return state;
}

}  // namespace

TEST_CASE("a launch waits only where nothing but room is missing", "[agent][fanout]") {
  CHECK(SlotWait::is_due(after_a_try({1})));
  CHECK(SlotWait::is_due(after_a_try({0, 2})));
  CHECK_FALSE(SlotWait::is_due(after_a_try({})));
  auto other = after_a_try({1});
  other.hosts[2].trouble = {HostTrouble::What::exited, Exited{1}, 0, {}};
  CHECK_FALSE(SlotWait::is_due(other));
  other.hosts[2].trouble = {HostTrouble::What::silent, {}, 0, {}};
  CHECK_FALSE(SlotWait::is_due(other));
  auto stopped = after_a_try({1});
  stopped.stop_signal = SIGINT;
  CHECK_FALSE(SlotWait::is_due(stopped));
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
