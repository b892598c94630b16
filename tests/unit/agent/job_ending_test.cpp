#include "agent/job_ending.hpp"

#include <catch2/catch.hpp>

using namespace acc;
using namespace acc::agent;

TEST_CASE("the rest of the output is waited for as its user would", "[agent]") {
  const Millis patience{60'000};
  SECTION("of a job that has ended by itself: as long as it is taken") {
    const auto limits = limits_of_last_flush(false, false, patience);
    CHECK(limits.patience == patience);
    CHECK(limits.cap > std::chrono::hours{24});
  }
  SECTION("of a job that was stopped: not long for what takes nothing") {
    const auto limits = limits_of_last_flush(false, true, patience);
    CHECK(limits.patience == Millis{2'000});
    CHECK(limits.cap == Millis{30'000});
    CHECK(limits_of_last_flush(false, true, Millis{500}).patience == Millis{500});
  }
  SECTION("after another signal: hardly") {
    for (const bool is_stopped : {false, true})
      CHECK(limits_of_last_flush(true, is_stopped, patience).cap == Millis{300});
  }
}

TEST_CASE("a job of one launch whose coordinators were killed ended without a word", "[agent]") {
  EndHere here{.nodes = 4, .outcome = Outcome::nodes_missing};
  CHECK(tells_end(here));
  here.is_closed = true;  // the coordinator's node tells it
  CHECK_FALSE(tells_end(here));
  here.tells_job = true;
  CHECK(tells_end(here));
  here = {.nodes = 4, .outcome = Outcome::stopped};
  CHECK_FALSE(tells_end(here));
  here.has_told_job = true;
  CHECK(tells_end(here));
}

TEST_CASE("a node that ends without its guardian leaves the end of the job to the others",
          "[agent]") {
  EndHere here{.tells_job = true, .is_guardian_lost = true, .nodes = 3};
  CHECK_FALSE(tells_end(here));
  here.nodes = 2;  // no majority is left
  CHECK(tells_end(here));
}
