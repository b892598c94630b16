#include "agent/watch/suspects.hpp"

#include "agent/watch/page_evidence.hpp"
#include "agent/worker_group.hpp"

#include <catch2/catch.hpp>

#include <chrono>
#include <vector>

using namespace acc;
using namespace acc::agent;
using namespace std::chrono_literals;
using heartbeat::Beat;

namespace {

Beat beat(std::uint64_t time_ns, std::uint64_t step, std::uint64_t beats = 10) {
  Beat one;
  one.time_ns = time_ns;
  one.step = step;
  one.beats = beats;
  return one;
}

SilentRank silent(std::uint32_t rank) { return {LocalRank{rank}, 12s, 10s, false, {}}; }

// 0 silent, 1 nearly so, 2 stuck, 3 starting
const Suspects kFound{{silent(0)},
                      {silent(1)},
                      {LocalRank{2}},
                      {LocalRank{3}},
                      {beat(1, 7), beat(2, 7), beat(3, 7), beat(4, 0, 1)}};

}  // namespace

TEST_CASE("a silent rank that beats meanwhile ends the suspicion of those that were nearly so",
          "[agent][watch]") {
  auto now = kFound.beats;
  CHECK(kFound.still_silent(now) == std::vector<SilentRank>{silent(0), silent(1)});
  now[1].time_ns = 9;
  CHECK(kFound.still_silent(now) == std::vector<SilentRank>{silent(0)});
  now[1].time_ns = 2;
  now[0].time_ns = 9;
  CHECK(kFound.still_silent(now).empty());
  CHECK(kFound.still_silent({}).size() == 2);  // unknown: nothing has changed
}

TEST_CASE("a rank that tries again is stuck until its step advances or a section begins",
          "[agent][watch]") {
  auto now = kFound.beats;
  now[2].time_ns = 9;
  CHECK(kFound.is_still_stuck(LocalRank{2}, now));
  CHECK_FALSE(kFound.is_still_stuck(LocalRank{0}, now));
  now[2].section_since_ns = 9;
  CHECK_FALSE(kFound.is_still_stuck(LocalRank{2}, now));
  now[2].section_since_ns = 0;
  now[2].step = 8;
  CHECK_FALSE(kFound.is_still_stuck(LocalRank{2}, now));
}

TEST_CASE("what other nodes were told of a suspect holds until it goes on", "[agent][watch]") {
  auto now = kFound.beats;
  now[2].time_ns = 9;  // that it beats is why it is stuck
  std::vector<bool> lives(now.size(), true);
  CHECK_FALSE(kFound.has_any_gone_on(now, lives));
  SECTION("silent") { now[0].time_ns = 9; }
  SECTION("nearly silent") { now[1].time_ns = 9; }
  SECTION("stuck") { now[2].step = 8; }
  SECTION("starting") { now[3].beats = heartbeat::kFirstBeats; }
  SECTION("ended") { lives[2] = false; }
  CHECK(kFound.has_any_gone_on(now, lives));
}

TEST_CASE("a rank of which no heartbeat is due yet is starting, if it lives", "[agent][watch]") {
  CHECK(starting_ranks({beat(1, 7), beat(0, 0, 0), beat(1, 0, 1), beat(0, 0, 0)},
                       {true, true, true, false}) ==
        std::vector<LocalRank>{LocalRank{1}, LocalRank{2}});
}

TEST_CASE("without its stacks a node still tells of its silent, stuck and starting ranks",
          "[agent][watch]") {
  std::vector<WorkerRecord> workers;
  for (std::uint32_t i = 0; i < 5; ++i) {
    WorkerRecord worker;
    worker.local_rank = LocalRank{i};
    worker.rank = Rank{8 + i};
    worker.pid = static_cast<pid_t>(100 + i);
    workers.push_back(worker);
  }
  auto now = kFound.beats;
  now.push_back(beat(9, 8));  // of a rank that goes on
  const std::string node = "b";
  const auto told =
      evidence_of_page({node, workers, now, Instant{}}, kFound, kFound.still_silent(now));
  REQUIRE(told.ranks.size() == 4);
  const auto& stuck = told.ranks[2].summary;
  CHECK(told.ranks[0].summary.is_silent);
  CHECK(told.ranks[1].summary.is_silent);
  CHECK_FALSE(stuck.is_silent);
  CHECK(stuck.is_stuck);
  CHECK(stuck.rank == Rank{10});
  CHECK(stuck.pid == 102);
  CHECK(stuck.step == 7);
  CHECK(stuck.node == "b");
  CHECK(told.ranks[3].summary.is_starting);
}

TEST_CASE("stacks say of a rank that it is silent only while it still is", "[agent][watch]") {
  evidence::NodeEvidence stacks{.node = "b", .ranks = {}, .tools = {}};
  for (std::uint32_t i = 0; i < 3; ++i) {
    evidence::RankEvidence rank;
    rank.summary.local_rank = LocalRank{i};
    stacks.ranks.push_back(rank);
  }
  auto now = kFound.beats;
  mark_suspects(kFound, now, stacks);
  CHECK(stacks.ranks[0].summary.is_silent);
  CHECK(stacks.ranks[2].summary.is_stuck);
  now[0].time_ns = now[2].time_ns = 9;
  now[2].step = 8;
  mark_suspects(kFound, now, stacks);
  CHECK_FALSE(stacks.ranks[0].summary.is_silent);
  CHECK_FALSE(stacks.ranks[2].summary.is_stuck);
}
