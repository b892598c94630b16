#include "agent/failed_attempts.hpp"

#include <catch2/catch.hpp>

using namespace acc;
using namespace acc::agent;

TEST_CASE("a report of the first node had no failed attempt where another node's worker had failed",
          "[agent][report]") {
  FailedAttempts attempts;
  attempts.take({});
  attempts.attempt_begins();
  CHECK(attempts.count() == 0);
  // Told by the coordinator as it ends the round, not at all as the workers here had ended, or twice
  // as one here failed, too.
  for (int told = GENERATE(0, 1, 2); told > 0; --told) attempts.attempt_failed();
  attempts.take({.restarts = 1, .budget_used = 1});
  CHECK(attempts.count() == 1);
  attempts.attempt_begins();
  SECTION("it fails, too, as the restarts used were given back") {
    attempts.attempt_failed();
    attempts.take({.restarts = 2, .budget_used = 1});
    CHECK(attempts.count() == 2);
  }
  SECTION("a restart is asked for") {
    attempts.take({.restarts = 2, .budget_used = 1});
    CHECK(attempts.count() == 1);
  }
}

TEST_CASE("a failed job had no failed attempt on a node whose workers had all finished",
          "[agent][report]") {
  FailedAttempts attempts;
  attempts.attempt_begins();
  SECTION("it is told with the end of the job alone") {}
  SECTION("it was told before") { attempts.attempt_failed(); }
  attempts.job_failed(Round{3}, Round{3});
  CHECK(attempts.count() == 1);
  attempts.attempt_begins();
  attempts.job_failed(Round{3}, Round{4});  // that one was ended by its user
  CHECK(attempts.count() == 1);
}

TEST_CASE("what failed before a node joined isn't counted there", "[agent][report]") {
  FailedAttempts attempts;
  attempts.take({.restarts = 3, .budget_used = 3});
  attempts.attempt_begins();
  CHECK(attempts.count() == 0);
}
