#include "agent/watch/straggler_watch.hpp"

#include <catch2/catch.hpp>

#include <algorithm>
#include <chrono>
#include <random>
#include <vector>

using namespace acc;
using namespace acc::agent;
using namespace std::chrono_literals;
using heartbeat::Beat;

namespace {

/// Ranks whose steps take a time with jitter, looked at once a second.
class Race {
 public:
  Race(std::size_t ranks, double seconds, double jitter, unsigned seed)
      : jitter_{jitter}, random_{seed}, seconds_(ranks, seconds), next_(ranks, 0), beats_(ranks) {
    watch_.begin_round(static_cast<std::uint32_t>(ranks));
  }
  void slow_down(std::size_t rank, double times) { seconds_[rank] *= times; }
  /// Its next step takes so much longer.
  void hold(std::size_t rank, double seconds) { next_[rank] += seconds; }
  /// A section of one rank, for which all others wait behind the heartbeat of their next step.
  std::size_t section(std::size_t rank, int seconds) {
    std::size_t found = 0;
    for (std::size_t i = 0; i < beats_.size(); ++i) {
      next_[i] += seconds;
      if (i == rank) continue;
      next_[i] += seconds_[i];
      beats_[i].time_ns = static_cast<std::uint64_t>(now_ * 1e9);
      ++beats_[i].beats;
      ++beats_[i].step;
    }
    beats_[rank].section_since_ns = static_cast<std::uint64_t>(now_ * 1e9);
    for (int i = 0; i < seconds; ++i) found += second().size();
    beats_[rank].section_since_ns = 0;
    return found;
  }
  /// Nobody looks for so long.
  void skip(double seconds) { now_ += seconds; }
  void restart() {
    watch_.restart(Instant{std::chrono::nanoseconds{static_cast<std::int64_t>(now_ * 1e9)}});
  }
  std::uint64_t steps(std::size_t rank) const { return beats_[rank].step; }

  std::vector<StragglerWatch::Straggler> second() {
    now_ += 1;
    for (std::size_t i = 0; i < beats_.size(); ++i) {
      while (next_[i] <= now_) {
        beats_[i].time_ns = static_cast<std::uint64_t>(next_[i] * 1e9);
        ++beats_[i].beats;
        ++beats_[i].step;
        std::normal_distribution<double> noise;  // of a deviation above 0: that is scaled here
        next_[i] += seconds_[i] * std::max(0.05, 1 + jitter_ * noise(random_));
      }
    }
    return watch_.look(beats_,
                       Instant{std::chrono::nanoseconds{static_cast<std::int64_t>(now_ * 1e9)}});
  }
  std::optional<double> rate(std::uint32_t rank) const {
    return watch_.steps_per_second(
        LocalRank{rank}, Instant{std::chrono::nanoseconds{static_cast<std::int64_t>(now_ * 1e9)}});
  }

 private:
  double jitter_;
  std::mt19937 random_;
  std::vector<double> seconds_;
  std::vector<double> next_;
  std::vector<Beat> beats_;
  double now_ = 0;
  StragglerWatch watch_;
};

}  // namespace

TEST_CASE("a rank that is 2.5 times slower is found within 30 of its steps, and told once",
          "[agent][straggler]") {
  for (unsigned seed = 0; seed < 50; ++seed) {
    CAPTURE(seed);
    Race race{8, 1.0, 0.3, seed};
    for (int i = 0; i < 60; ++i) REQUIRE(race.second().empty());
    race.slow_down(3, 2.5);
    const auto before = race.steps(3);
    std::vector<StragglerWatch::Straggler> found;
    while (found.empty() && race.steps(3) < before + 60) found = race.second();
    REQUIRE(found.size() == 1);
    CHECK(found[0].rank == LocalRank{3});
    CHECK(found[0].times_slower > 2);
    CHECK(race.steps(3) - before <= 30);
    for (int i = 0; i < 300; ++i) REQUIRE(race.second().empty());
    CHECK(race.rate(3).value() == Approx(0.4).epsilon(0.3));
    CHECK(race.rate(0).value() == Approx(1.0).epsilon(0.3));
  }
}

TEST_CASE("each of several slow ranks among 256 is found", "[agent][straggler]") {
  Race race{256, 0.2, 0.3, 7};
  for (int i = 0; i < 20; ++i) REQUIRE(race.second().empty());
  const std::vector<std::size_t> slow{0, 8, 16, 33, 34, 35, 255};
  for (const auto rank : slow) race.slow_down(rank, 2.5);
  std::vector<std::size_t> found;
  for (int i = 0; i < 60; ++i)
    for (const auto& one : race.second()) found.push_back(one.rank.value());
  std::sort(found.begin(), found.end());
  CHECK(found == slow);
}

TEST_CASE("10,000 steps with 30 % jitter have no false straggler", "[agent][straggler]") {
  for (const double seconds : {0.2, 1.0, 7.0}) {
    Race race{8, seconds, 0.3, 7};
    while (race.steps(0) < 10'000) REQUIRE(race.second().empty());
  }
}

TEST_CASE("one hiccup made a straggler of a healthy rank, whose slowness later was never told",
          "[agent][straggler]") {
  for (const double step : {0.05, 0.1, 0.5, 1.0, 3.0}) {
    CAPTURE(step);
    Race race{3, step, 0.05, 1};
    for (int i = 0; i < 60; ++i) REQUIRE(race.second().empty());
    race.hold(1, 40 * step);
    for (int i = 0; i < 200; ++i) REQUIRE(race.second().empty());
    race.slow_down(1, 3);
    std::size_t told = 0;
    for (int i = 0; i < 300; ++i) told += race.second().size();
    CHECK(told == 1);
  }
}

TEST_CASE("a rank that recovered and slowed down again was told once a round",
          "[agent][straggler]") {
  Race race{4, 1.0, 0.05, 1};
  const auto told = [&](int seconds) {
    std::size_t count = 0;
    for (int i = 0; i < seconds; ++i) count += race.second().size();
    return count;
  };
  CHECK(told(50) == 0);
  race.slow_down(1, 4);
  CHECK(told(200) == 1);
  race.slow_down(1, 0.25);
  CHECK(told(200) == 0);
  race.slow_down(1, 4);
  CHECK(told(200) == 1);
  for (int i = 0; i < 5; ++i) {  // for less than a minute: it is no news
    race.slow_down(1, 0.25);
    CHECK(told(20) == 0);
    race.slow_down(1, 4);
    CHECK(told(60) == 0);
  }
}

TEST_CASE("a slow rank was told again after a section and one fast look", "[agent][straggler]") {
  Race race{4, 1.0, 0.05, 1};
  const auto told = [&](int seconds) {
    std::size_t count = 0;
    for (int i = 0; i < seconds; ++i) count += race.second().size();
    return count;
  };
  race.slow_down(1, 4);
  CHECK(told(200) == 1);
  race.slow_down(1, 0.25);
  CHECK(race.section(0, 120) == 0);  // nobody is compared meanwhile
  CHECK(told(40) == 0);
  race.slow_down(1, 4);
  CHECK(told(100) == 0);
}

TEST_CASE("steps in which a debugger held a rank make no straggler of it", "[agent][straggler]") {
  const bool is_restarted = GENERATE(true, false);
  CAPTURE(is_restarted);
  Race race{4, 0.1, 0.05, 1};
  for (int i = 0; i < 20; ++i) REQUIRE(race.second().empty());
  std::size_t told = 0;
  for (int hold = 0; hold < 6; ++hold) {  // one is a hiccup
    race.hold(2, 3);
    if (is_restarted) {
      race.skip(3);
      race.restart();
    }
    for (int i = 0; i < 4; ++i) told += race.second().size();
  }
  for (int i = 0; i < 60; ++i) told += race.second().size();
  CHECK(told == (is_restarted ? 0U : 1U));
}

TEST_CASE("a pause of all ranks made a straggler of one that is 1.5 times slower",
          "[agent][straggler]") {
  for (const double step : {0.05, 0.2, 1.0}) {
    CAPTURE(step);
    Race race{4, step, 0.05, 1};
    race.slow_down(2, 1.5);
    for (int i = 0; i < 60; ++i) REQUIRE(race.second().empty());
    for (std::size_t rank = 0; rank < 4; ++rank) race.hold(rank, 8);
    for (int i = 0; i < 120; ++i) REQUIRE(race.second().empty());
    race.slow_down(2, 2.5 / 1.5);  // a real one is still told
    std::size_t told = 0;
    for (int i = 0; i < 120; ++i) told += race.second().size();
    CHECK(told == 1);
  }
}

TEST_CASE("the rate of a rank that hangs falls with the time that it waits", "[agent][straggler]") {
  StragglerWatch watch;
  watch.begin_round(1);
  std::vector<Beat> beats(1);
  const auto rate = [&](std::int64_t second) {
    return watch.steps_per_second(LocalRank{0}, Instant{std::chrono::seconds{second}});
  };
  for (std::uint64_t second = 1; second <= 11; ++second) {
    beats[0].beats = beats[0].step = 2 * second;
    beats[0].time_ns = second * 1'000'000'000;
    watch.look(beats, Instant{std::chrono::seconds{second}});
  }
  CHECK(rate(11).value() == Approx(2));
  CHECK(rate(12).value() == Approx(2));  // not late yet
  const auto late = rate(20).value();
  CHECK(late < 1.2);
  CHECK(rate(100).value() < late);
  // In a section no steps are due.
  beats[0].section_since_ns = 12'000'000'000;
  watch.look(beats, Instant{std::chrono::seconds{13}});
  CHECK_FALSE(rate(13));
}

TEST_CASE("slow steps have a rate after the second of them", "[agent][straggler]") {
  Race race{2, 10.0, 0, 1};
  for (int i = 0; i < 15; ++i) race.second();
  CHECK(race.rate(0).value() == Approx(0.1).epsilon(0.05));
}

TEST_CASE("a rank that waited for another's section was called a straggler", "[agent][straggler]") {
  for (const std::size_t ranks : {2, 3}) {
    for (const double step : {0.1, 0.6, 1.2}) {
      CAPTURE(ranks, step);
      Race race{ranks, step, 0, 1};
      for (int i = 0; i < 40; ++i) REQUIRE(race.second().empty());
      CHECK(race.section(0, 30) == 0);
      for (int i = 0; i < 80; ++i) REQUIRE(race.second().empty());
      race.slow_down(1, 2.5);
      std::vector<StragglerWatch::Straggler> found;
      for (int i = 0; i < 120 && found.empty(); ++i) found = race.second();
      REQUIRE(found.size() == 1);  // a real one afterwards is still told
      CHECK(found[0].rank == LocalRank{1});
    }
  }
}

TEST_CASE("one rank alone is no straggler, nor is one after a section", "[agent][straggler]") {
  StragglerWatch watch;
  watch.begin_round(1);
  std::vector<Beat> beats(1);
  for (std::uint64_t i = 1; i < 100; ++i) {
    beats[0].beats = beats[0].step = i;
    beats[0].time_ns = i * i * 1'000'000'000;
    CHECK(watch.look(beats, Instant{std::chrono::seconds{i * i}}).empty());
  }
}
