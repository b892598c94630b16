#include "agent/cpu_limit.hpp"

#include <catch2/catch.hpp>

#include <csignal>

using namespace acc::agent;
using namespace std::chrono_literals;

TEST_CASE("SIGKILL at the hard limit of processor time is the kernel's", "[agent][cpu_limit]") {
  const CpuFacts spent{60.0, 60, 60};
  CHECK(reached_cpu_limit(SIGKILL, spent) == 60s);
  CHECK(reached_cpu_limit(SIGKILL, {0.96, 1, 1}) == 1s);  // as seen: ticks lead the precise time
  CHECK(reached_cpu_limit(SIGKILL, {1.83, 2, 2}) == 2s);
  CHECK(reached_cpu_limit(SIGKILL, {3.2, 4, 4}) == 4s);
}

TEST_CASE("a worker that somebody kills long before its limit of processor time isn't blamed on it",
          "[agent][cpu_limit]") {
  CHECK_FALSE(reached_cpu_limit(SIGKILL, {30.0, 60, 60}));
  CHECK_FALSE(reached_cpu_limit(SIGKILL, {3000.0, 3600, 3600}));
  CHECK_FALSE(reached_cpu_limit(SIGKILL, {60.0, {}, {}}));
  CHECK_FALSE(reached_cpu_limit(SIGKILL, {60.0, 60, {}}));  // at the soft limit there is no SIGKILL
  CHECK_FALSE(reached_cpu_limit(SIGTERM, {60.0, 60, 60}));
}

TEST_CASE("with SIGXCPU the limit is the soft one, which the kernel has raised by a second",
          "[agent][cpu_limit]") {
  CHECK(reached_cpu_limit(SIGXCPU, {60.0, 61, 120}) == 60s);
  CHECK(reached_cpu_limit(SIGXCPU, {0.96, 2, 5}) == 1s);
  CHECK_FALSE(reached_cpu_limit(SIGXCPU, {1.0, 61, 120}));
}
