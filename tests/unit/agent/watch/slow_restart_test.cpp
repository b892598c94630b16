#include "agent/watch/slow_restart.hpp"

#include <catch2/catch.hpp>

#include <vector>

using namespace acc;
using namespace acc::agent;

namespace {

Instant at(int milliseconds) { return Instant{} + Millis{milliseconds}; }

heartbeat::Beat beat_at(int milliseconds, std::uint64_t beats = 1) {
  heartbeat::Beat beat;
  beat.beats = beats;
  beat.time_ns = static_cast<std::uint64_t>(milliseconds) * 1'000'000;
  return beat;
}

}  // namespace

TEST_CASE("a restart that passed in imports is told once, with its times", "[agent][watch]") {
  SlowRestart restart;
  restart.round_started(at(0));
  CHECK_FALSE(restart.look({beat_at(9'000)}));  // a first start
  restart.round_ended(true, at(10'000));
  restart.round_started(at(10'600));
  CHECK_FALSE(restart.look({beat_at(18'000, 5), {}}));  // one hasn't begun
  const auto found = restart.look({beat_at(18'500, 9), beat_at(19'300, 1)});
  REQUIRE(found);
  CHECK(found->whole == Millis{9'300});
  CHECK(found->workers == Millis{8'700});
  restart.round_ended(true, at(30'000));
  restart.round_started(at(30'000));
  CHECK_FALSE(restart.look({beat_at(40'000)}));  // told already
}

TEST_CASE("a quick restart, or one that waited for nodes, is not told", "[agent][watch]") {
  SlowRestart restart;
  restart.round_ended(true, at(0));
  restart.round_started(at(100));
  CHECK_FALSE(restart.look({beat_at(1'500)}));
  restart.round_ended(true, at(0));
  restart.round_started(at(60'000));
  CHECK_FALSE(restart.look({beat_at(64'000)}));
}
