#include "agent/watch/hang_detector.hpp"

#include <catch2/catch.hpp>

#include <chrono>
#include <vector>

using namespace acc;
using namespace acc::agent;
using namespace std::chrono_literals;
using heartbeat::Beat;

namespace {

const Instant kStart{1000s};

std::uint64_t ns(Instant time) {
  return static_cast<std::uint64_t>(std::chrono::nanoseconds{time.time_since_epoch()}.count());
}

HangPolicy fixed(Millis timeout) {
  HangPolicy policy;
  policy.kind = HangPolicy::Kind::fixed;
  policy.timeout = timeout;
  return policy;
}

HangPolicy learning() {
  HangPolicy policy;
  policy.kind = HangPolicy::Kind::learned;
  return policy;
}

/// Workers that beat as a test says.
struct Ranks {
  HangDetector detector;
  std::vector<Beat> beats;
  std::vector<bool> lives;
  explicit Ranks(const HangPolicy& policy, std::uint32_t count = 2, LearnedTimes before = {})
      : detector{policy, before}, beats(count), lives(count, true) {
    detector.begin_round(kStart, count);
  }
  void beat(std::size_t rank, Instant now) {
    ++beats[rank].beats;
    beats[rank].step = beats[rank].beats - 1;
    beats[rank].time_ns = ns(now);
  }
  void beat_all(Instant now) {
    for (std::size_t i = 0; i < beats.size(); ++i) beat(i, now);
  }
  HangDetector::Look look(Instant now) { return detector.look(beats, lives, now); }
};

}  // namespace

TEST_CASE("a worker without a heartbeat for the time-out is silent, not a moment before",
          "[agent][hang]") {
  Ranks ranks{fixed(10s)};
  for (int i = 0; i < 5; ++i) ranks.beat_all(kStart + i * 1s);
  ranks.beat(1, kStart + 12s);
  const auto before = ranks.look(kStart + 13999ms);
  CHECK(before.silent.empty());
  CHECK(before.next == kStart + 14s);  // rank 0 beat last at 4 s
  const auto then = ranks.look(kStart + 14s);
  REQUIRE(then.silent.size() == 1);
  CHECK(then.silent[0].rank == LocalRank{0});
  CHECK(then.silent[0].silent == 10s);
  CHECK(then.silent[0].limit == 10s);
  CHECK_FALSE(then.silent[0].is_before_first_step);
  CHECK(then.next == kStart + 22s);
  CHECK(then.nearly.empty());
  const auto later = ranks.look(kStart + 17s);
  REQUIRE(later.nearly.size() == 1);  // it may wait for the other one
  CHECK(later.nearly[0].rank == LocalRank{1});
}

TEST_CASE("a worker that has exited is not silent", "[agent][hang]") {
  Ranks ranks{fixed(10s)};
  for (int i = 0; i < 3; ++i) ranks.beat_all(kStart + i * 1s);
  ranks.lives[0] = false;
  const auto look = ranks.look(kStart + 1h);
  REQUIRE(look.silent.size() == 1);
  CHECK(look.silent[0].rank == LocalRank{1});
}

TEST_CASE("the first step has a longer time-out", "[agent][hang]") {
  auto policy = fixed(10s);
  SECTION("of our own: 3 times, at least 10 minutes") {
    Ranks ranks{policy};
    ranks.beat_all(kStart + 1s);  // before the first step
    CHECK(ranks.look(kStart + 600s).silent.empty());
    const auto look = ranks.look(kStart + 601s);
    CHECK(look.silent.size() == 2);
    CHECK(look.silent[0].is_before_first_step);
    policy.timeout = 1h;
    CHECK(HangDetector{policy, {}}.first_limit() == 3h);
  }
  SECTION("as given") {
    policy.first_step = 30s;
    Ranks ranks{policy};
    CHECK(ranks.look(kStart + 29s).silent.empty());
    CHECK(ranks.look(kStart + 30s).silent.size() == 2);  // also without any heartbeat
  }
}

TEST_CASE("a program that sends no heartbeats doesn't hang by our default", "[agent][hang]") {
  Ranks ranks{fixed(10s)};
  CHECK_FALSE(ranks.look(kStart + 599s).is_unused);
  const auto look = ranks.look(kStart + 600s);
  CHECK(look.silent.empty());
  CHECK(look.is_unused);
}

TEST_CASE("a healthy job whose rank 0 alone sends heartbeats was ended after ten minutes",
          "[agent][hang]") {
  auto policy = fixed(10s);
  SECTION("by our own time for the first step") {
    Ranks ranks{policy};
    for (int i = 0; i < 700; ++i) ranks.beat(0, kStart + i * 1s);
    const auto look = ranks.look(kStart + 700s);
    CHECK(look.silent.empty());
    CHECK_FALSE(look.is_unused);
    REQUIRE(look.without_heartbeats.size() == 1);
    CHECK(look.without_heartbeats[0] == LocalRank{1});
    CHECK(look.next == kStart + 709s);
    const auto then = ranks.look(kStart + 709s);  // now rank 0 waits, perhaps for the other one
    CHECK(then.silent.size() == 2);
    CHECK(then.without_heartbeats.empty());
  }
  SECTION("a time that was given holds for all") {
    policy.first_step = 600s;
    Ranks ranks{policy};
    for (int i = 0; i < 700; ++i) ranks.beat(0, kStart + i * 1s);
    const auto look = ranks.look(kStart + 700s);
    REQUIRE(look.silent.size() == 1);
    CHECK(look.silent[0].rank == LocalRank{1});
  }
}

TEST_CASE("in a section only its own limit counts", "[agent][hang]") {
  Ranks ranks{fixed(10s), 1};
  for (int i = 0; i < 3; ++i) ranks.beat_all(kStart + i * 1s);
  auto& beat = ranks.beats[0];
  beat.section = "checkpoint";
  beat.section_since_ns = beat.time_ns = ns(kStart + 3s);
  SECTION("without one it may take any time") {
    const auto look = ranks.look(kStart + 24h);
    CHECK(look.silent.empty());
    CHECK_FALSE(look.next);
  }
  SECTION("with one it may take that long, whatever the heartbeats say") {
    beat.section_limit_ms = 60'000;
    beat.time_ns = ns(kStart + 60s);
    CHECK(ranks.look(kStart + 62s).silent.empty());
    const auto look = ranks.look(kStart + 63s);
    REQUIRE(look.silent.size() == 1);
    CHECK(look.silent[0].section == "checkpoint");
    CHECK(look.silent[0].limit == 60s);
  }
  SECTION("its end is a sign of life") {
    beat.section.clear();
    beat.section_since_ns = 0;
    beat.time_ns = ns(kStart + 100s);
    CHECK(ranks.look(kStart + 109s).silent.empty());
    CHECK(ranks.look(kStart + 110s).silent.size() == 1);
  }
}

TEST_CASE("what passed while all were stopped doesn't count", "[agent][hang]") {
  Ranks ranks{fixed(10s), 1};
  for (int i = 0; i < 3; ++i) ranks.beat_all(kStart + i * 1s);
  ranks.detector.restart_clocks(kStart + 1h);
  CHECK(ranks.look(kStart + 1h + 9s).silent.empty());
  CHECK(ranks.look(kStart + 1h + 10s).silent.size() == 1);
}

TEST_CASE("stacks that are asked for again and again put off no hang", "[agent][hang]") {
  Ranks ranks{fixed(10s), 1};
  for (int i = 0; i < 3; ++i) ranks.beat_all(kStart + i * 1s);
  Instant now = kStart + 2s;
  // Each second of the program's own is followed by two in which a debugger holds it.
  for (int i = 0; i < 9; ++i) {
    now += 1s;
    ranks.detector.leave_out(now, now + 2s);
    now += 2s;
    CHECK(ranks.look(now).silent.empty());
  }
  const auto look = ranks.look(now + 1s);
  REQUIRE(look.silent.size() == 1);
  CHECK(look.silent[0].silent == 10s);
}

TEST_CASE("many stacks of one silence cost no memory, and no healthy worker", "[agent][hang]") {
  Ranks ranks{fixed(1h), 1};
  for (int i = 0; i < 3; ++i) ranks.beat_all(kStart + i * 1s);
  Instant now = kStart + 2s;
  for (int i = 0; i < 1000; ++i) {
    ranks.detector.leave_out(now, now + 10s);
    now += 11s;
    CHECK(ranks.look(now).silent.empty());
  }
  CHECK(ranks.look(now + 2h).silent.size() == 1);
}

TEST_CASE("what passed while all were stopped isn't learned as a step", "[agent][hang]") {
  Ranks ranks{learning()};
  Instant now = kStart;
  const auto beats = [&](int count) {
    for (int i = 0; i < count; ++i) {
      now += 1s;
      ranks.beat_all(now);
      CHECK(ranks.look(now).silent.empty());
    }
  };
  beats(30);
  const auto before = ranks.detector.step_limit();
  now += 100s;
  SECTION("by Ctrl-Z") { ranks.detector.restart_clocks(now); }
  SECTION("by a debugger of ours") { ranks.detector.leave_out(now - 100s, now); }
  beats(5);
  CHECK(ranks.detector.step_limit() == before);
}

TEST_CASE("a learned time-out is five times the longest interval of any rank", "[agent][hang]") {
  Ranks ranks{learning()};
  Instant now = kStart;
  for (int i = 0; i < 15; ++i) {
    now += 8s;
    ranks.beat_all(now);
    CHECK(ranks.look(now).silent.empty());
  }
  CHECK(ranks.detector.step_limit() == 40s);
  now += 12s;
  ranks.beat(1, now);
  ranks.look(now);
  CHECK(ranks.detector.step_limit() == 60s);
  CHECK(ranks.detector.learned() == LearnedTimes{12s, 16s});
  CHECK(ranks.look(now + 59s).silent.size() == 1);  // rank 0 beat 12 s earlier
}

TEST_CASE("a learned time-out is never short, and sections don't count for it", "[agent][hang]") {
  Ranks ranks{learning(), 1};
  Instant now = kStart;
  for (int i = 0; i < 30; ++i) {
    now += 100ms;
    ranks.beat_all(now);
    ranks.look(now);
  }
  ranks.beats[0].section_since_ns = ns(now);
  ranks.look(now);
  now += 500s;
  ranks.beats[0].section_since_ns = 0;
  ranks.beat_all(now);
  ranks.look(now);
  CHECK(ranks.detector.step_limit() == 30s);
}

TEST_CASE("until enough was seen the limit is that of the first step, or of earlier runs",
          "[agent][hang]") {
  CHECK(HangDetector(learning(), {}).step_limit() == 30min);
  const HangDetector known{learning(), {20s, 5min}};
  CHECK(known.step_limit() == 100s);
  CHECK(known.first_limit() == 25min);
  CHECK_FALSE(known.learned());
}

TEST_CASE(
    "a healthy job was ended in each attempt by what another one had taught --hang_timeout auto",
    "[agent][hang]") {
  Ranks ranks{learning(), 1, {100ms, 3s}};
  Instant now = kStart;
  const auto beats = [&](int count, Millis apart) {
    for (int i = 0; i < count; ++i) {
      for (const Instant next = now + apart; now < next; now += 1s) {
        INFO("after " << std::chrono::duration_cast<Millis>(now - kStart).count() << " ms");
        CHECK(ranks.look(now).silent.empty());
      }
      ranks.beat_all(now);
      ranks.look(now);
    }
  };
  beats(2, 60s);
  CHECK(ranks.detector.step_limit() == 300s);
  SECTION("its own steps teach it") {
    beats(25, 60s);
    CHECK(ranks.detector.step_limit() == 300s);
    CHECK(ranks.detector.learned() == LearnedTimes{60s, 120s});
  }
  SECTION("of a slow first step that holds only until enough intervals were seen") {
    beats(20, 1s);
    CHECK(ranks.detector.step_limit() == 30s);
  }
  SECTION("each attempt has a first step of its own") {
    now += 1s;
    ranks.beats.assign(1, {});
    ranks.detector.begin_round(now, 1);
    CHECK(ranks.detector.step_limit() == 30s);
    beats(1, 600s);
    beats(3, 100s);
    CHECK(ranks.detector.step_limit() == 500s);
  }
}

TEST_CASE("a section between the first two heartbeats is no measure of a step", "[agent][hang]") {
  Ranks ranks{learning(), 1, {100ms, 3s}};
  ranks.beat_all(kStart + 1s);
  ranks.beats[0].section_since_ns = ns(kStart + 1s);
  ranks.look(kStart + 1s);
  ranks.beats[0].section_since_ns = 0;
  ranks.beat_all(kStart + 1h);
  ranks.look(kStart + 1h);
  CHECK(ranks.detector.step_limit() == 30s);
}

TEST_CASE("half of what earlier runs took longer is forgotten", "[agent][hang]") {
  Ranks ranks{learning(), 1, {40s, 0s}};
  Instant now = kStart;
  for (int i = 0; i < 30; ++i) {
    now += 2s;
    ranks.beat_all(now);
    ranks.look(now);
  }
  CHECK(ranks.detector.step_limit() == 200s);  // in this run still as before
  CHECK(ranks.detector.learned()->step == 21s);
}

namespace {

/// Three ranks that have all sent their third heartbeat at kStart + 2 s, and a look each second.
struct Three : Ranks {
  Instant now = kStart + 2s;
  explicit Three(Millis timeout = 10s) : Ranks{fixed(timeout), 3} {
    for (int i = 0; i < 3; ++i) beat_all(kStart + i * 1s);
    look(now);
  }
  void enter(std::size_t rank, Millis limit) {
    beats[rank].section = "checkpoint";
    beats[rank].section_since_ns = beats[rank].time_ns = ns(now);
    beats[rank].section_limit_ms = static_cast<std::uint64_t>(limit.count());
  }
  void leave(std::size_t rank) {
    beats[rank].section.clear();
    beats[rank].section_since_ns = beats[rank].section_limit_ms = 0;
    beats[rank].time_ns = ns(now);
  }
  /// The last one of the looks until then; those before it find nothing.
  HangDetector::Look look_until(Instant end) {
    while (now + 1s < end) {
      now += 1s;
      INFO("after " << std::chrono::duration_cast<Millis>(now - kStart).count() << " ms");
      CHECK(look(now).silent.empty());
    }
    now = end;
    return look(now);
  }
};

std::vector<std::uint32_t> ranks_of(const std::vector<SilentRank>& silent) {
  std::vector<std::uint32_t> ranks;
  for (const auto& one : silent) ranks.push_back(one.rank.value());
  return ranks;
}

using Numbers = std::vector<std::uint32_t>;

}  // namespace

TEST_CASE("a healthy job in which one rank saved while the others waited was ended",
          "[agent][hang]") {
  Three ranks;
  const Millis limit = GENERATE(Millis{600s}, Millis{0});
  ranks.enter(1, limit);
  const auto held = ranks.look_until(kStart + 300s);
  CHECK(held.silent.empty());
  CHECK(ranks_of(held.held) == Numbers{0, 2});
  CHECK(held.in_section == std::vector<LocalRank>{LocalRank{1}});
  ranks.leave(1);
  // Then the clocks go on: all wait for what rank 1 has yet to do in its step.
  CHECK(ranks.look_until(kStart + 309s).silent.empty());
  CHECK(ranks_of(ranks.look_until(kStart + 310s).silent) == Numbers{0, 1, 2});
}

TEST_CASE("what passed before a section counts after it", "[agent][hang]") {
  Three ranks;
  ranks.look_until(kStart + 8s);  // 6 s
  ranks.enter(1, 600s);
  ranks.look_until(kStart + 100s);
  ranks.leave(1);
  CHECK(ranks.look_until(kStart + 103s).silent.empty());
  const auto look = ranks.look_until(kStart + 104s);
  CHECK(ranks_of(look.silent) == Numbers{0, 2});
  CHECK(look.silent[0].silent == 10s);
}

TEST_CASE("a rank that hung in its section was not named, but those that waited for it",
          "[agent][hang]") {
  Three ranks;
  ranks.enter(1, 60s);
  CHECK(ranks.look_until(kStart + 61s).silent.empty());
  const auto look = ranks.look_until(kStart + 62s);
  REQUIRE(ranks_of(look.silent) == Numbers{1});
  CHECK(look.silent[0].is_overdue());
  CHECK(look.silent[0].section == "checkpoint");
  CHECK(ranks_of(look.nearly) == Numbers{0, 2});  // their stacks tell
  CHECK(look.held.empty());
}

TEST_CASE("sections of several ranks, one after the other or at once, hold the others",
          "[agent][hang]") {
  Three ranks;
  ranks.enter(1, 0s);
  ranks.look_until(kStart + 20s);
  ranks.enter(2, 0s);
  ranks.look_until(kStart + 40s);
  ranks.leave(1);
  ranks.look_until(kStart + 45s);
  ranks.leave(2);
  CHECK(ranks.look_until(kStart + 54s).silent.empty());
}

TEST_CASE("a rank that exits within its section holds nobody", "[agent][hang]") {
  Three ranks;
  ranks.enter(1, 0s);
  ranks.look_until(kStart + 20s);
  ranks.lives[1] = false;
  CHECK(ranks.look_until(kStart + 29s).silent.empty());
  CHECK(ranks_of(ranks.look_until(kStart + 30s).silent) == Numbers{0, 2});
}

TEST_CASE("a debugger's time within a section is left out once", "[agent][hang]") {
  Three ranks;
  ranks.enter(1, 0s);
  ranks.look_until(kStart + 20s);
  ranks.now += 5s;  // no look in it
  ranks.detector.leave_out(kStart + 20s, ranks.now);
  ranks.look_until(kStart + 30s);
  ranks.leave(1);
  CHECK(ranks.look_until(kStart + 39s).silent.empty());
  CHECK(ranks.look_until(kStart + 40s).silent.size() == 3);
}

TEST_CASE("a section on another node holds those here, whose clocks begin anew", "[agent][hang]") {
  Three ranks;
  ranks.look_until(kStart + 11s);
  ranks.detector.wait_for_other_nodes(kStart + 12s);
  CHECK(ranks.look_until(kStart + 21s).silent.empty());
  CHECK(ranks.look_until(kStart + 22s).silent.size() == 3);
}

TEST_CASE("ranks wait visibly after an eighth of the time-out, or six seconds", "[agent][hang]") {
  Three ranks{16s};
  CHECK_FALSE(ranks.look_until(kStart + 3s).is_any_waiting);
  CHECK(ranks.look_until(kStart + 4s).is_any_waiting);
  ranks.detector.wait_for_other_nodes(kStart + 5s);
  CHECK(ranks.look_until(kStart + 6s).is_any_waiting);  // they still are silent
  ranks.enter(0, 0s);
  ranks.enter(1, 0s);
  ranks.beat(2, ranks.now);
  CHECK_FALSE(ranks.look_until(kStart + 7s).is_any_waiting);
  Three patient{600s};
  CHECK_FALSE(patient.look_until(kStart + 7s).is_any_waiting);
  CHECK(patient.look_until(kStart + 8s).is_any_waiting);
}

TEST_CASE("another node's steps are no reason to judge ranks of which little is known",
          "[agent][hang]") {
  Ranks ranks{learning()};
  for (int i = 0; i < 3; ++i) {
    ranks.beat_all(kStart + i * 1s);
    ranks.look(kStart + i * 1s);
  }
  ranks.detector.take_longer_step(Millis{11'000});
  CHECK(ranks.detector.step_limit() == ranks.detector.first_limit());
  CHECK(ranks.detector.longest_step() < Millis{11'000});
  for (int i = 3; i < 30; ++i) {
    ranks.beat_all(kStart + i * 1s);
    ranks.look(kStart + i * 1s);
  }
  CHECK(ranks.detector.step_limit() == Millis{55'000});
}

TEST_CASE("a rank that tries again and again, with heartbeats of one step, is stuck",
          "[agent][hang]") {
  Three ranks;
  const bool goes_on = GENERATE(false, true);
  HangDetector::Look look;
  while (ranks.now < kStart + 12s) {
    ranks.now += 1s;
    ++ranks.beats[1].beats;
    ranks.beats[1].time_ns = ns(ranks.now);
    if (goes_on) ++ranks.beats[1].step;
    look = ranks.look(ranks.now);
  }
  CHECK(ranks_of(look.silent) == Numbers{0, 2});
  CHECK(look.stuck == (goes_on ? std::vector<LocalRank>{} : std::vector<LocalRank>{LocalRank{1}}));
}

TEST_CASE(
    "a rank with heartbeats of one step wasn't looked at where all silent ranks were elsewhere",
    "[agent][hang]") {
  Ranks ranks{fixed(10s), 3};
  for (int i = 0; i < 5; ++i) ranks.beat_all(kStart + i * 1s);
  for (int i = 5; i < 10; ++i) {
    const Instant now = kStart + i * 1s;
    ranks.beat(0, now);
    ranks.beats[1].time_ns = ns(now);
    ranks.look(now);
  }
  const auto look = ranks.detector.look_beside_silent(ranks.beats, ranks.lives, kStart + 10s);
  CHECK(look.silent.empty());
  CHECK(look.stuck == std::vector<LocalRank>{LocalRank{1}});
  CHECK(ranks_of(look.nearly) == Numbers{2});  // in a long step, maybe
  CHECK(ranks.look(kStart + 10s).stuck.empty());
}

TEST_CASE("a step in which another rank was in a section isn't learned", "[agent][hang]") {
  Ranks ranks{learning(), 2};
  Instant now = kStart;
  const auto beats = [&](int count) {
    for (int i = 0; i < count; ++i) {
      now += 1s;
      ranks.beat_all(now);
      ranks.look(now);
    }
  };
  beats(30);
  ranks.beats[1].section_since_ns = ns(now);
  for (int i = 0; i < 100; ++i) ranks.look(now += 1s);
  ranks.beats[1].section_since_ns = 0;
  beats(5);
  CHECK(ranks.detector.step_limit() == 30s);
}

namespace {

HangPolicy with_first_step(Millis first) {
  auto policy = fixed(10s);
  policy.first_step = first;
  return policy;
}

/// Rank 0's first program (pid 100) has beaten until 20 s, and has opened a section or not.
Ranks two_programs(const HangPolicy& policy) {
  Ranks ranks{policy};
  ranks.beats[0].pid = 100;
  ranks.beats[1].pid = 200;
  for (int i = 0; i <= 20; ++i) {
    ranks.beat_all(kStart + i * 1s);
    CHECK(ranks.look(kStart + i * 1s).silent.empty());
  }
  return ranks;
}

Beat claimed_by(std::uint32_t pid) {
  Beat beat;
  beat.pid = pid;
  return beat;
}

}  // namespace

TEST_CASE("the second program of a rank was ended as hung while it started", "[agent][hang]") {
  auto ranks = two_programs(with_first_step(40s));
  const auto go_on = [&](int from, int to) {
    for (int i = from; i < to; ++i) {
      ranks.beat(1, kStart + i * 1s);
      CHECK(ranks.look(kStart + i * 1s).silent.empty());
    }
  };
  SECTION("it has the page at once") {
    ranks.beats[0] = claimed_by(101);
    go_on(21, 61);
  }
  SECTION("nobody has it for a while") {
    ranks.beats[0] = claimed_by(0);
    go_on(21, 51);
    ranks.beats[0] = claimed_by(101);  // a start of its own
    go_on(51, 91);
  }
  SECTION("with the same pid, as by exec") {
    ranks.beats[0] = claimed_by(100);
    go_on(21, 61);
  }
  SECTION("its first heartbeat is before its first step") {
    ranks.beats[0] = claimed_by(101);
    ranks.beat(0, kStart + 21s);
    go_on(21, 61);
  }
  const auto& beat = ranks.beats[0];
  const bool is_late = beat.pid == 101 && beat.beats == 0 && ranks.beats[1].beats > 80;
  const auto look = ranks.look(kStart + (is_late ? 91s : 61s));
  REQUIRE(look.silent.size() == 1);
  CHECK(look.silent[0].rank == LocalRank{0});
  CHECK(look.silent[0].is_before_first_step);
  CHECK(look.silent[0].limit == 40s);
  CHECK(look.silent[0].is_successor == (beat.beats == 0));
}

TEST_CASE("a script was told that no worker has sent a heartbeat after its last program",
          "[agent][hang]") {
  auto ranks = two_programs(fixed(10s));
  ranks.beats[0] = ranks.beats[1] = claimed_by(0);  // both have ended; what follows sends none
  CHECK(ranks.look(kStart + 21s).silent.empty());
  const auto look = ranks.look(kStart + 21s + 10min);
  CHECK(look.silent.empty());
  CHECK_FALSE(look.is_unused);
}

TEST_CASE("after its start the second program of a rank is judged as the first one was",
          "[agent][hang]") {
  auto ranks = two_programs(with_first_step(40s));
  ranks.beats[0] = claimed_by(101);
  ranks.look(kStart + 21s);
  ranks.beat_all(kStart + 30s);
  ranks.beat_all(kStart + 31s);
  CHECK(ranks.look(kStart + 40s).silent.empty());
  const auto look = ranks.look(kStart + 41s);
  REQUIRE(look.silent.size() == 2);
  CHECK_FALSE(look.silent[0].is_before_first_step);
}

TEST_CASE("a section that a killed program left open was its successor's", "[agent][hang]") {
  auto ranks = two_programs(with_first_step(40s));
  ranks.beats[0].section = "checkpoint";
  ranks.beats[0].section_since_ns = ns(kStart + 20s);
  ranks.beats[0].section_limit_ms = 5000;
  ranks.look(kStart + 21s);
  SECTION("its page is cleared") { ranks.beats[0] = claimed_by(101); }
  SECTION("or it is new as such") { ranks.beats[0].pid = 101; }  // no look misreads a half-done one
  ranks.beat(1, kStart + 26s);
  const auto look = ranks.look(kStart + 26s);
  CHECK(look.silent.empty());
}

TEST_CASE("the start of a rank's second program was learned as a long step", "[agent][hang]") {
  Ranks ranks{learning()};
  ranks.beats[0].pid = 100;
  for (int i = 0; i < 30; ++i) {
    ranks.beat_all(kStart + i * 1s);
    ranks.look(kStart + i * 1s);
  }
  CHECK(ranks.detector.longest_step() == 1s);
  ranks.beats[0] = claimed_by(101);
  ranks.look(kStart + 30s);
  for (int i = 200; i < 205; ++i) {  // it is at its third step when it is seen
    ranks.beat(0, kStart + i * 1s);
    if (i > 201) ranks.look(kStart + i * 1s);
  }
  CHECK(ranks.detector.longest_step() == 1s);
  CHECK(ranks.detector.learned()->first == 172s);  // from its own begin
}
