#include "agent/evidence/culprits.hpp"

#include "agent/evidence/stack_text.hpp"
#include "agent/watch/hang_cause.hpp"

#include <catch2/catch.hpp>

#include <chrono>
#include <string>
#include <vector>

using namespace acc;
using namespace acc::agent::evidence;
using namespace std::chrono_literals;

namespace {

const std::string kShmWait = "acc::runtime::shm::sleep_on";
const std::string kTcpWait = "acc::runtime::tcp::AbortableWait::poll_awake";

// Collective 12 of the world is the newest one: the rank hasn't entered it.
RankSummary before_collective(std::uint32_t number, std::optional<bool> waits, std::string at) {
  RankSummary s;
  s.rank = Rank{number};
  s.local_rank = LocalRank{number};
  s.node = "a";
  s.state = 'S';
  s.is_silent = s.has_beaten = true;
  s.step = 9;
  s.collectives = 11;
  s.operation = "all_reduce";
  s.waits_for_others = waits;
  s.at = std::move(at);
  return s;
}

RankSummary in_collective(std::uint32_t number, std::string at) {
  auto s = before_collective(number, true, std::move(at));
  s.step = 11;
  s.collectives = 12;
  s.is_inside = true;
  return s;
}

}  // namespace

TEST_CASE("a rank that waited in a group of split() was named, not the one for which it waited",
          "[agent][evidence]") {
  const std::vector<RankSummary> all{
      before_collective(0, true, kShmWait), in_collective(1, kShmWait),
      before_collective(2, false, "nap (c.cpp:17)"), in_collective(3, kShmWait)};
  CHECK(find_culprits(all).which == std::vector<std::size_t>{2});
  CHECK(behind_lines(all) ==
        std::vector<std::string>{"behind the others: rank 2, at nap (c.cpp:17): it hasn't entered "
                                 "all_reduce #12, in which ranks 1,3 wait; rank 0 waits as well"});
}

TEST_CASE("of two culprits without heartbeats only the stopped one was told", "[agent][evidence]") {
  std::vector<RankSummary> all{before_collective(0, true, "all_reduce (t.py:9)"),
                               before_collective(1, false, "next (loader.py:3)"),
                               before_collective(2, {}, "stop (t.py:5)")};
  for (const auto i : {1, 2}) {
    all[i].is_silent = all[i].has_beaten = false;
    all[i].is_starting = true;
  }
  all[2].state = 'T';
  const auto found = find_culprits(all);
  CHECK(found.which == std::vector<std::size_t>{2});
  CHECK(found.not_waiting == std::vector<std::size_t>{1});
}

TEST_CASE("ranks that waited in recv were named, not the one for which they waited",
          "[agent][evidence]") {
  const std::vector<RankSummary> all{
      before_collective(0, true, kShmWait), before_collective(1, true, kShmWait),
      before_collective(2, false, "nap (c.cpp:17)"), in_collective(3, kShmWait)};
  const auto found = find_culprits(all);
  CHECK(found.which == std::vector<std::size_t>{2});
  CHECK(found.why ==
        "it hasn't entered all_reduce #12, in which rank 3 waits; ranks 0,1 wait as well");
}

TEST_CASE(
    "ranks that wait outside of the newest collective are named where all that are missing do",
    "[agent][evidence]") {
  const std::vector<RankSummary> all{before_collective(0, true, kShmWait),
                                     in_collective(1, kShmWait),
                                     before_collective(2, true, kShmWait)};
  CHECK(find_culprits(all).which == std::vector<std::size_t>{0, 2});
}

TEST_CASE("a rank whose stack isn't known is named for one that is known to wait",
          "[agent][evidence]") {
  const std::vector<RankSummary> all{before_collective(0, true, kShmWait),
                                     in_collective(1, kShmWait), before_collective(2, {}, {})};
  CHECK(find_culprits(all).which == std::vector<std::size_t>{2});
}

TEST_CASE("the place of a rank that looks at the clock all the time was the clock",
          "[agent][evidence]") {
  const ThreadStack stack{"",
                          {{"clock_gettime@@GLIBC_2.17", "libc.so.6"},
                           {"std::chrono::_V2::steady_clock::now()", "libstdc++.so.6"},
                           {"spin_forever()", "c.cpp:16"}}};
  CHECK(place_of(stack) == "spin_forever (c.cpp:16)");
}

TEST_CASE("over hosts a rank that waited in a group of split() was named", "[agent][evidence]") {
  const ThreadStack stack{"",
                          {{"__poll", "poll.c:29"},
                           {kTcpWait, "abortable_wait.cpp:69"},
                           {"acc::runtime::tcp::AbortableWait::wait", "abortable_wait.cpp:50"},
                           {"main", "c.cpp:44"}}};
  NodeEvidence a{"a", {}, {}}, b{"b", {}, {}};
  for (std::uint32_t i = 0; i < 4; ++i) {
    RankEvidence one;
    one.summary = i % 2 == 0 ? before_collective(i, waits_for_others(stack), kTcpWait)
                             : in_collective(i, kTcpWait);
    if (i == 2) one.summary.waits_for_others = false;
    one.summary.local_rank = LocalRank{i % 2};
    one.summary.node = i < 2 ? "a" : "b";
    (i < 2 ? a : b).ranks.push_back(one);
  }
  const std::vector<agent::SilentRank> silent{{LocalRank{0}, 12s, 10s, false, {}},
                                              {LocalRank{1}, 11s, 10s, false, {}}};
  CHECK(agent::cause_of_hang(silent, {Rank{2}, Rank{3}}, {b, a}).is_here);
  const auto on_a = agent::cause_of_hang(silent, {Rank{0}, Rank{1}}, {a, b});
  CHECK_FALSE(on_a.is_here);
  CHECK_THAT(on_a.text, Catch::Matchers::StartsWith("hung: waits for rank 2 on b, which hung"));
}
