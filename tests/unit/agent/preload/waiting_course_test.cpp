#include "agent/preload/waiting_course.hpp"

#include <catch2/catch.hpp>

#include <cstdint>

using namespace acc;
using acc::agent::preload::WaitingCourse;

using Phase = WaitingCourse::Phase;

namespace {

constexpr std::uint64_t kMega = std::uint64_t{1} << 20U;
constexpr std::uint64_t kPlenty = 100'000 * kMega;
constexpr std::uint64_t kPreloader = 200 * kMega;
constexpr Instant kStart{};

// Forks until the set is complete, a worker in 10 ms. @return the moment at which the last one waits
Instant fork_all(WaitingCourse& course) {
  Instant now = kStart;
  while (course.due()) {
    now = *course.due();
    REQUIRE(course.on_due(kPlenty, kPreloader, now) == course.waiting() + 1);
    now += Millis{10};
    course.on_waits(4 * kMega, now);
  }
  return now;
}

WaitingCourse complete(std::uint32_t workers) {
  WaitingCourse course;
  course.round_started(workers, kStart);
  fork_all(course);
  REQUIRE(course.phase() == Phase::complete);
  return course;
}

}  // namespace

TEST_CASE("workers are forked ahead one by one, when a round runs, with rests between them",
          "[agent][preload]") {
  WaitingCourse course;
  CHECK_FALSE(course.due());
  course.round_started(2, kStart);
  REQUIRE(course.due() == kStart + WaitingCourse::kQuiet);
  const Instant asked = *course.due();
  CHECK(course.on_due(kPlenty, kPreloader, asked) == 1);
  CHECK(course.phase() == Phase::growing);
  CHECK_FALSE(course.due());
  CHECK(course.on_due(kPlenty, kPreloader, asked) == 0);
  course.on_waits(4 * kMega, asked + Millis{10});
  CHECK(course.phase() == Phase::resting);
  CHECK(course.due() == asked + Millis{10} + Millis{10} * WaitingCourse::kRestFactor);
  CHECK(course.on_due(kPlenty, kPreloader, *course.due()) == 2);
  course.on_waits(4 * kMega, asked + Millis{100});
  CHECK(course.phase() == Phase::complete);
  CHECK_FALSE(course.due());
}

TEST_CASE("a round that ends stops the forks, and the next one takes what waits", "[agent][preload]") {
  WaitingCourse course;
  course.round_started(3, kStart);
  CHECK(course.on_due(kPlenty, kPreloader, *course.due()) == 1);
  course.pause();
  course.on_waits(4 * kMega, kStart + Millis{1'010});  // it was on its way
  CHECK(course.waiting() == 1);
  CHECK_FALSE(course.due());
  course.take();
  CHECK(course.phase() == Phase::none);
  CHECK_FALSE(course.due());
  course.round_started(3, kStart + Millis{2'000});
  CHECK(course.due() == kStart + Millis{2'000} + WaitingCourse::kQuiet);
}

TEST_CASE("a worker that was on its way when a round took the set is none of the next set",
          "[agent][preload]") {
  WaitingCourse course;
  course.round_started(2, kStart);
  CHECK(course.on_due(kPlenty, kPreloader, *course.due()) == 1);
  course.take();
  course.on_waits(4 * kMega, kStart + Millis{1'010});
  CHECK(course.waiting() == 0);
}

TEST_CASE("a set that no round used is completed when the next one has more workers",
          "[agent][preload]") {
  auto course = complete(2);
  course.pause();
  course.round_started(2, kStart + Millis{5'000});
  CHECK_FALSE(course.due());
  course.round_started(3, kStart + Millis{9'000});
  REQUIRE(course.due());
  CHECK(course.on_due(kPlenty, kPreloader, *course.due()) == 3);
}

TEST_CASE("none is forked ahead where memory is tight", "[agent][preload]") {
  SECTION("as much as the preloader has is assumed for the first") {
    WaitingCourse course;
    course.round_started(4, kStart);
    CHECK(course.on_due(kPreloader * WaitingCourse::kPartOfMemory - 4, kPreloader, *course.due()) == 0);
    CHECK_FALSE(course.due());
  }
  SECTION("what the first one takes counts for each of the others") {
    WaitingCourse course;
    course.round_started(4, kStart);
    CHECK(course.on_due(kPreloader * WaitingCourse::kPartOfMemory, kPreloader, *course.due()) == 1);
    course.on_waits(50 * kMega, kStart + Millis{1'010});
    CHECK(course.on_due(149 * kMega * WaitingCourse::kPartOfMemory, kPreloader, *course.due()) == 0);
    CHECK(course.waiting() == 1);
    course.round_started(4, kStart + Millis{9'000});  // another round, another look
    CHECK(course.on_due(150 * kMega * WaitingCourse::kPartOfMemory, kPreloader, *course.due()) == 2);
  }
  SECTION("and where nothing is known of it") {
    WaitingCourse course;
    course.round_started(4, kStart);
    CHECK(course.on_due(0, kPreloader, *course.due()) == 0);
  }
}

TEST_CASE("a set that is lost is forked again, some times", "[agent][preload]") {
  auto course = complete(2);
  for (std::uint32_t i = 0; i < WaitingCourse::kMostLosses; ++i) {
    course.on_lost(kStart + Millis{5'000});
    CHECK(course.phase() == Phase::none);
    CHECK(course.due() == kStart + Millis{5'000} + WaitingCourse::kQuiet);
  }
  course.on_lost(kStart + Millis{9'000});
  CHECK_FALSE(course.due());
  course.round_started(2, kStart + Millis{10'000});
  CHECK_FALSE(course.due());
}

TEST_CASE("the end of the preloader is the end of its set, and none of the set's own losses",
          "[agent][preload]") {
  auto course = complete(2);
  for (std::uint32_t i = 0; i < 2 * WaitingCourse::kMostLosses; ++i)
    course.on_preloader_ended(kStart + Millis{5'000});
  CHECK(course.waiting() == 0);
  CHECK(course.due() == kStart + Millis{5'000} + WaitingCourse::kQuiet);
  course.pause();
  course.on_preloader_ended(kStart + Millis{6'000});
  CHECK_FALSE(course.due());
}
