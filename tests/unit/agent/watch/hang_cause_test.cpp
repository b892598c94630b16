#include "agent/watch/hang_cause.hpp"

#include <catch2/catch.hpp>

#include <algorithm>
#include <chrono>
#include <string>
#include <vector>

using namespace acc;
using namespace acc::agent;
using namespace std::chrono_literals;
using evidence::NodeEvidence;

namespace {

/// Two silent ranks of a node, at step 41.
NodeEvidence node_of(const std::string& name, std::uint32_t first_rank) {
  NodeEvidence node{name, {}, {}};
  for (std::uint32_t i = 0; i < 2; ++i) {
    evidence::RankEvidence one;
    one.summary.rank = Rank{first_rank + i};
    one.summary.local_rank = LocalRank{i};
    one.summary.node = name;
    one.summary.is_silent = one.summary.has_beaten = true;
    one.summary.step = 41;
    node.ranks.push_back(std::move(one));
  }
  return node;
}

std::vector<SilentRank> both_silent() {
  return {{LocalRank{0}, 12s, 10s, false, {}}, {LocalRank{1}, 11s, 10s, false, {}}};
}

const std::vector<Rank> kOnA{Rank{0}, Rank{1}};
const std::vector<Rank> kOnB{Rank{2}, Rank{3}};

}  // namespace

TEST_CASE("a hang is blamed on the rank that is behind, with its last step and place",
          "[agent][watch]") {
  auto node = node_of("a", 0);
  node.ranks[1].summary.step = 40;
  node.ranks[1].summary.at = "load (data.py:7)";
  const auto cause = cause_of_hang(both_silent(), kOnA, {node});
  CHECK(cause.worker == LocalRank{1});
  CHECK(cause.is_here);
  CHECK(cause.text ==
        "hung: no heartbeat for 11 s after step 40, at load (data.py:7); others are at step 41");
}

TEST_CASE("ranks that nothing tells apart are named together", "[agent][watch]") {
  const auto cause = cause_of_hang(both_silent(), kOnA, {node_of("b", 2), node_of("a", 0)});
  CHECK(cause.worker == LocalRank{0});
  CHECK(cause.text ==
        "hung: no heartbeat for 12 s after step 41; likewise ranks 1-3: nothing tells them apart");
  auto overdue = node_of("a", 0);
  for (auto& rank : overdue.ranks) rank.summary.waits_for_others = rank.summary.is_overdue = true;
  overdue.ranks.push_back(overdue.ranks[0]);
  overdue.ranks[2].summary.rank = Rank{2};
  overdue.ranks[2].summary.is_overdue = false;
  const auto both = cause_of_hang({{LocalRank{0}, 12s, 10s, false, "save"}}, {Rank{0}, Rank{1}, Rank{2}},
                                  {overdue});
  CHECK(both.text == "hung in section 'save', which may take 10 s; likewise rank 1");
}

TEST_CASE("of ranks that wait for each other in different places only the first one's was told",
          "[agent][watch]") {
  auto a = node_of("a", 0), b = node_of("b", 2);
  const auto text = [&] { return cause_of_hang(both_silent(), kOnA, {a, b}).text; };
  const auto place = [](NodeEvidence& node, std::size_t i, const std::string& at) {
    node.ranks[i].summary.at = at;
    node.ranks[i].summary.waits_for_others = true;
  };
  place(a, 0, "f (x.py:6)");
  place(a, 1, "g (x.py:7)");
  place(b, 0, "f (x.py:6)");
  place(b, 1, "g (x.py:7)");
  CHECK(text() ==
        "hung: no heartbeat for 12 s after step 41, at f (x.py:6); likewise rank 2; ranks 1,3, at "
        "g (x.py:7): nothing tells them apart");
  place(b, 0, "h (x.py:8)");
  place(b, 1, "i (x.py:9)");
  CHECK(text() ==
        "hung: no heartbeat for 12 s after step 41, at f (x.py:6); likewise rank 1, at g (x.py:7); "
        "rank 2, at h (x.py:8); rank 3, elsewhere: nothing tells them apart");
  b.ranks.pop_back();
  b.ranks.pop_back();
  CHECK(text() ==
        "hung: no heartbeat for 12 s after step 41, at f (x.py:6); likewise rank 1, at g (x.py:7): "
        "nothing tells them apart");
}

TEST_CASE("all nodes blame the same rank, and those without it say that they wait for it",
          "[agent][watch]") {
  auto a = node_of("host", 0), b = node_of("host", 2);  // their names are equal
  b.ranks[1].summary.state = 'T';
  const auto on_b = cause_of_hang(both_silent(), kOnB, {b, a});
  CHECK(on_b.is_here);
  CHECK(on_b.worker == LocalRank{1});
  const auto on_a = cause_of_hang(both_silent(), kOnA, {a, b});
  CHECK_FALSE(on_a.is_here);
  CHECK(on_a.worker == LocalRank{0});
  CHECK(on_a.text.starts_with("hung: waits for rank 3 on host, which hung: no heartbeat for "));
  CHECK(on_a.text.ends_with("; it was stopped by a signal (state T)"));
}

TEST_CASE("one rank was stopped, another slept, and only the stopped one was told",
          "[agent][watch]") {
  auto a = node_of("a", 0), b = node_of("b", 2);
  a.ranks[0].summary.waits_for_others = b.ranks[1].summary.waits_for_others = true;
  a.ranks[1].summary.state = 'T';
  b.ranks[0].summary.waits_for_others = false;
  b.ranks[0].summary.at = "load (data.py:7)";
  const auto cause = cause_of_hang(both_silent(), kOnA, {a, b});
  CHECK(cause.worker == LocalRank{1});
  CHECK(cause.text.ends_with("; it was stopped by a signal (state T); rank 2 doesn't wait for it, at "
                             "load (data.py:7)"));
  a.ranks[0].summary.waits_for_others.reset();  // then nobody is known to wait in a call that we know
  b.ranks[1].summary.waits_for_others.reset();
  CHECK(cause_of_hang(both_silent(), kOnA, {a, b}).text.ends_with("(state T)"));
}

TEST_CASE("a rank that goes on is never blamed", "[agent][watch]") {
  auto node = node_of("a", 0);
  node.ranks[0].summary.is_silent = false;
  node.ranks[0].summary.step = 1;
  auto silent = both_silent();
  silent.erase(silent.begin());
  CHECK(cause_of_hang(silent, kOnA, {node}).worker == LocalRank{1});
}

TEST_CASE("a hang says whose limit was passed", "[agent][watch]") {
  auto node = node_of("a", 0);
  node.ranks.pop_back();
  const auto text_of = [&](const SilentRank& silent) {
    return cause_of_hang({silent}, kOnA, {node}).text;
  };
  CHECK(text_of({LocalRank{0}, 70s, 60s, false, "save"}) ==
        "hung in section 'save', which may take 1 min");
  CHECK(text_of({LocalRank{0}, 20s, 0s, false, {}}) ==
        "hung: no worker used the CPU, read or wrote anything for 20 s");
  node.ranks[0].summary.has_beaten = false;
  CHECK(text_of({LocalRank{0}, 20s, 10s, true, {}}) ==
        "hung: no heartbeat for 20 s, before its first step");
  // A rank that had sent 20 steps from another program was said to be before its first step.
  CHECK(text_of({LocalRank{0}, 20s, 10s, true, {}, true}) ==
        "hung: no heartbeat for 20 s, none since the program before it ended");
}

TEST_CASE("a rank that lags though it sends heartbeats is blamed with its step", "[agent][watch]") {
  auto a = node_of("a", 0), b = node_of("b", 2);
  for (auto* const node : {&a, &b})
    for (auto& rank : node->ranks) rank.summary.waits_for_others = true;
  auto& lagging = b.ranks[1].summary;
  lagging.is_silent = false;
  lagging.is_stuck = true;
  lagging.waits_for_others.reset();
  lagging.at = "fetch (data.py:7)";
  auto silent_on_b = both_silent();
  silent_on_b.pop_back();
  const auto on_b = cause_of_hang(silent_on_b, kOnB, {a, b});
  CHECK(on_b.is_here);
  CHECK(on_b.worker == LocalRank{1});
  CHECK(on_b.text ==
        "hung: sends heartbeats, but only of step 41, at fetch (data.py:7); ranks 0-2 wait for it");
  const auto on_a = cause_of_hang(both_silent(), kOnA, {a, b});
  CHECK_FALSE(on_a.is_here);
  CHECK(on_a.text.starts_with(
      "hung: waits for rank 3 on b, which hung: sends heartbeats, but only "));
}

TEST_CASE("a rank that tries again in the step after the others' heartbeats was told nowhere",
          "[agent][watch]") {
  auto node = node_of("a", 0);
  node.ranks[1].summary.is_silent = false;
  node.ranks[1].summary.is_stuck = true;
  node.ranks[1].summary.step = 42;
  const std::vector<SilentRank> silent{{LocalRank{0}, 12s, 10s, false, {}}};
  CHECK(cause_of_hang(silent, kOnA, {node}).text ==
        "hung: no heartbeat for 12 s after step 41; rank 1 sends heartbeats, but only of step 42");
  node.ranks[0].summary.waits_for_others = true;
  node.ranks[1].summary.waits_for_others = false;
  CHECK(cause_of_hang(silent, kOnA, {node}).text ==
        "hung: sends heartbeats, but only of step 42; rank 0 waits for it");
}

TEST_CASE("a rank that sends no heartbeats is blamed as such, also by its node, which has no silent one",
          "[agent][watch]") {
  auto a = node_of("a", 0), b = node_of("b", 2);
  for (auto& rank : a.ranks) rank.summary.waits_for_others = true;
  for (auto& rank : b.ranks) {
    rank.summary.is_silent = rank.summary.has_beaten = false;
    rank.summary.is_starting = true;
    rank.summary.waits_for_others = true;
  }
  auto& culprit = b.ranks[1].summary;
  culprit.waits_for_others = false;
  culprit.at = "load (data.py:7)";
  const auto on_b = cause_of_hang({}, kOnB, {b, a});
  CHECK(on_b.is_here);
  CHECK(on_b.worker == LocalRank{1});
  CHECK(on_b.text ==
        "hung: no heartbeat in this attempt, at load (data.py:7); ranks 0-2 wait for it; rank 2 "
        "sent no heartbeat in this attempt");
  const auto on_a = cause_of_hang(both_silent(), kOnA, {a, b});
  CHECK_FALSE(on_a.is_here);
  CHECK(on_a.text.starts_with("hung: waits for rank 3 on b, which hung: no heartbeat in this "));
  culprit.state = 'R';
  CHECK(cause_of_hang({}, kOnB, {b, a})
            .text.starts_with("hung, or is busy (state R): no heartbeat in this attempt, at load"));
  culprit.state = 'S';
  culprit.has_beaten = true;
  CHECK(cause_of_hang({}, kOnB, {b, a}).text.starts_with("hung: no heartbeat since its first, at "));
}

TEST_CASE("the only suspect of a node, with heartbeats of one step, is named by both nodes",
          "[agent][watch]") {
  auto a = node_of("a", 0), b = node_of("b", 2);
  b.ranks.pop_back();
  for (auto& rank : a.ranks) rank.summary.waits_for_others = true;
  auto& trying = b.ranks[0].summary;
  trying.is_silent = false;
  trying.is_stuck = true;
  trying.waits_for_others = false;
  trying.step = 42;
  trying.at = "fetch (data.py:7)";
  const auto on_b = cause_of_hang({}, kOnB, {b, a});
  CHECK(on_b.is_here);
  CHECK(on_b.text ==
        "hung: sends heartbeats, but only of step 42, at fetch (data.py:7); ranks 0,1 wait for it");
  CHECK(cause_of_hang(both_silent(), kOnA, {a, b})
            .text.starts_with(
                "hung: waits for rank 2 on b, which hung: sends heartbeats, but only "));
  // A thread of a rank that waits sends heartbeats, too.
  trying.waits_for_others = true;
  CHECK_FALSE(cause_of_hang({}, kOnB, {b, a}).is_here);
}

TEST_CASE("silent ranks of another node may wait for some that start, and some that try again",
          "[agent][watch]") {
  CHECK(awaited_words({2}, {}) == "rank 2, of which no heartbeat is known");
  CHECK(awaited_words({}, {1}) == "rank 1, which sends heartbeats of one step");
  CHECK(awaited_words({2}, {1, 3}) ==
        "rank 2, of which no heartbeat is known, or ranks 1,3, which send heartbeats of one step "
        "each");
}

TEST_CASE("a section that is over its limit on another node is no silence of heartbeats",
          "[agent][watch]") {
  auto a = node_of("a", 0), b = node_of("b", 2);
  b.ranks[0].summary.is_overdue = true;
  const auto on_a = cause_of_hang(both_silent(), kOnA, {a, b});
  CHECK(on_a.text ==
        "hung: waits for rank 2 on b, which hung in a section, for longer than that may take");
}

TEST_CASE("a rank that had finished, for which the others waited, was told nowhere",
          "[agent][watch]") {
  auto node = node_of("a", 0);
  node.finished = {{Rank{2}, 15s}};
  const auto text = [&] { return cause_of_hang(both_silent(), kOnA, {node}).text; };
  const std::string awaited =
      "hung: may wait for rank 2, which had finished (exit code 0) 15 s before: no heartbeat for "
      "12 s "
      "after step 41";
  CHECK(text() == awaited + "; likewise rank 1");
  SECTION("of another node") {
    NodeEvidence b{"b", {}, {}};
    b.finished.swap(node.finished);
    const auto cause = cause_of_hang(both_silent(), kOnA, {node, b});
    CHECK(cause.is_here);
    CHECK(cause.text == awaited + "; likewise rank 1");
  }
  SECTION("also where waits of the program's own look like work, or one alone waits") {
    for (auto& rank : node.ranks) rank.summary.waits_for_others = false;
    CHECK(text() == awaited + "; likewise rank 1");
    node.ranks.pop_back();
    node.ranks[0].summary.waits_for_others = true;
    CHECK(text() == awaited);
  }
  const std::string beside = "; rank 2 had finished (exit code 0) 15 s before";
  SECTION("one that is known not to wait isn't said to") {
    node.ranks[0].summary.waits_for_others = true;
    node.ranks[1].summary.waits_for_others = false;
    CHECK(text() == "hung: no heartbeat for 11 s after step 41; rank 0 waits for it" + beside);
    node.ranks.pop_back();
    node.ranks[0].summary.waits_for_others = false;
    CHECK(text() == "hung: no heartbeat for 12 s after step 41" + beside);
    node.ranks[0].summary.state = 'T';
    node.ranks[0].summary.waits_for_others = true;
    CHECK_THAT(text(), Catch::Matchers::EndsWith("(state T)" + beside));
  }
  SECTION("ranks that went on for long without it don't wait for it") {
    node.finished = {{Rank{2}, 3h}};
    CHECK(text() ==
          "hung: no heartbeat for 12 s after step 41; likewise rank 1: nothing tells them apart; "
          "rank 2 had finished (exit code 0) 3 h 0 min before");
  }
}
