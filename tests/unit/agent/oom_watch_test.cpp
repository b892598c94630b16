#include "agent/oom_watch.hpp"

#include <catch2/catch.hpp>

using namespace acc;
using namespace acc::agent;

TEST_CASE("an out-of-memory kill has the time at which it was seen first", "[agent][report]") {
  OomKills kills;
  const Instant begin{};
  kills.mark(7);
  CHECK(kills.since_mark() == 0);
  CHECK_FALSE(kills.last_before(begin));
  kills.see(7, begin + Millis{1'000});
  CHECK_FALSE(kills.last_before(begin + Millis{1'000}));
  kills.see(8, begin + Millis{2'000});
  kills.see(8, begin + Millis{3'000});
  CHECK(kills.since_mark() == 1);
  CHECK(kills.last_before(begin + Millis{10'000}) == Millis{8'000});
  CHECK(kills.last_before(begin + Millis{1'900}) == Millis{0});  // seen behind the end
  kills.see(9, begin + Millis{10'000});
  CHECK(kills.last_before(begin + Millis{10'000}) == Millis{0});
  kills.mark(9);  // of the next attempt
  CHECK_FALSE(kills.last_before(begin + Millis{10'000}));
}
