#include "rendezvous/clock_skew.hpp"

#include <catch2/catch.hpp>

using namespace acc;
using namespace acc::rendezvous;

TEST_CASE("a clock that differs is told once, and only when the round trip can't explain it",
          "[rendezvous][clock]") {
  constexpr std::int64_t kNow = 1'800'000'000'000;
  ClockSkew skew{Millis{1'000}};
  CHECK_FALSE(skew.judge(kNow, kNow, Millis{0}));
  CHECK_FALSE(skew.judge(kNow, kNow + 1'000, Millis{0}));
  // Read somewhere within a round trip of 400 ms: 1.2 s may be 1 s.
  CHECK_FALSE(skew.judge(kNow, kNow + 1'400, Millis{400}));
  CHECK_FALSE(skew.judge(kNow, kNow - 1'000, Millis{400}));
  CHECK_FALSE(skew.judge(0, kNow, Millis{0}));  // an older coordinator
  CHECK(skew.judge(kNow, kNow + 1'401, Millis{400}) == Millis{1'201});
  CHECK_FALSE(skew.judge(kNow, kNow + 90'000, Millis{0}));
  ClockSkew behind{Millis{1'000}};
  CHECK(behind.judge(kNow, kNow - 5'000, Millis{10}) == Millis{-5'005});
  ClockSkew off{Millis{0}};
  CHECK_FALSE(off.judge(kNow, kNow + 90'000, Millis{0}));
}
