#include "agent/job_telemetry.hpp"

#include <catch2/catch.hpp>

using namespace acc;
using namespace acc::agent;

TEST_CASE("running workers' progress is an event at once, with their first rate, then each 10 s",
          "[agent][events]") {
  ProgressRhythm rhythm;
  const Instant start = Instant{} + Millis{1'000'000};
  CHECK(rhythm.is_due(Round{0}, false, start));
  CHECK_FALSE(rhythm.is_due(Round{0}, false, start + Millis{1'000}));
  CHECK(rhythm.is_due(Round{0}, true, start + Millis{2'000}));
  CHECK_FALSE(rhythm.is_due(Round{0}, true, start + Millis{11'999}));
  CHECK(rhythm.is_due(Round{0}, true, start + Millis{12'000}));
  CHECK(rhythm.is_due(Round{1}, false, start + Millis{12'500}));
}
