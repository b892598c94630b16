#include "runtime/selftest/network_verdict.hpp"

#include <catch2/catch.hpp>

#include <algorithm>
#include <functional>

namespace acc::selftest {
namespace {

constexpr double kFast = 9400, kSlow = 50;

std::vector<NodeFacts> nodes(int count, double nic = 0) {
  std::vector<NodeFacts> all;
  for (int i = 0; i < count; ++i)
    all.push_back({std::string(1, static_cast<char>('a' + i)), "", nic, ""});
  return all;
}

/// Every pair, good but for what `change` makes of it.
std::vector<PairFacts> pairs(int count, const std::function<void(PairFacts&)>& change) {
  std::vector<PairFacts> all;
  for (int low = 0; low < count; ++low)
    for (int high = low + 1; high < count; ++high) {
      all.push_back({low, high, "", "", "", 50, kFast, kFast, 1});
      change(all.back());
    }
  return all;
}

bool is(const PairFacts& pair, int one, int other) {
  return pair.low == std::min(one, other) && pair.high == std::max(one, other);
}

/// "b: slow", "a-c: broken", "c>a: slow"
std::vector<std::string> blamed(const NetworkVerdict& verdict, std::span<const NodeFacts> all) {
  std::vector<std::string> words;
  for (const auto& blame : verdict.blamed) {
    std::string who = all[static_cast<std::size_t>(blame.nodes[0])].name;
    if (blame.nodes.size() > 1)
      who += (blame.is_directed ? ">" : "-") + all[static_cast<std::size_t>(blame.nodes[1])].name;
    words.push_back(who + ": " + std::string{to_string(blame.trouble)});
    CHECK_FALSE(blame.what.empty());
    CHECK_FALSE(blame.remedy.empty());
  }
  return words;
}

using Words = std::vector<std::string>;

Words of(int count, const std::function<void(PairFacts&)>& change, double nic = 0) {
  const auto all = nodes(count, nic);
  return blamed(judge_network(all, pairs(count, change)), all);
}

}  // namespace

TEST_CASE("where all pairs are alike nobody is blamed", "[selftest][network]") {
  for (const int count : {2, 3, 4, 7}) CHECK(of(count, [](PairFacts&) {}).empty());
}

TEST_CASE("a node that is slow with every partner is the one", "[selftest][network]") {
  for (const int count : {3, 4, 5})
    CHECK(of(count, [](PairFacts& pair) {
            if (pair.low == 1 || pair.high == 1) pair.mbit_to_high = pair.mbit_to_low = kSlow;
          }) == Words{"b: slow"});
}

TEST_CASE("a slow link blames neither of its ends", "[selftest][network]") {
  for (const int count : {3, 4})
    CHECK(of(count, [](PairFacts& pair) {
            if (is(pair, 0, 2)) pair.mbit_to_high = pair.mbit_to_low = kSlow;
          }) == Words{"a-c: slow"});
}

TEST_CASE("a direction is named", "[selftest][network]") {
  const auto backwards = [](PairFacts& pair) {
    if (is(pair, 0, 1)) pair.mbit_to_low = kSlow;
  };
  for (const int count : {2, 3, 4}) CHECK(of(count, backwards) == Words{"b>a: slow"});
  const auto all = nodes(3);
  const auto verdict = judge_network(all, pairs(3, backwards));
  CHECK(verdict.blamed.at(0).what ==
        "from b to a: 50 Mbit/s, where 9.4 Gbit/s are usual (a to b: 9.4 Gbit/s)");
}

TEST_CASE("a node that only sends slowly is told so", "[selftest][network]") {
  const auto all = nodes(3);
  const auto verdict = judge_network(all, pairs(3, [](PairFacts& pair) {
                                       if (pair.low == 1) pair.mbit_to_high = kSlow;
                                       if (pair.high == 1) pair.mbit_to_low = kSlow;
                                     }));
  REQUIRE(verdict.blamed.size() == 1);
  CHECK(verdict.blamed[0].what ==
        "b sends slowly with every partner (a and c): 50 Mbit/s at best, where 9.4 Gbit/s are "
        "usual");
}

TEST_CASE("two nodes have nothing to be compared with but what their interfaces say",
          "[selftest][network]") {
  const auto slow = [](PairFacts& pair) { pair.mbit_to_high = pair.mbit_to_low = kSlow; };
  CHECK(of(2, slow).empty());
  CHECK(of(2, slow, 10'000) == Words{"a-b: slow"});
  const auto all = nodes(2, 10'000);
  CHECK(judge_network(all, pairs(2, slow)).blamed.at(0).what ==
        "between a and b: 50 Mbit/s and 50 Mbit/s, where the interfaces have 10 Gbit/s");
}

TEST_CASE("a broken pair is a link's, a node without any connection is a node's",
          "[selftest][network]") {
  const auto cut = [](PairFacts& pair) {
    pair.low_to_high_refused = pair.high_to_low_refused = "timed out";
  };
  CHECK(of(3, [&](PairFacts& pair) {
          if (is(pair, 1, 2)) cut(pair);
        }) == Words{"b-c: broken"});
  CHECK(of(3, [&](PairFacts& pair) {
          if (pair.high == 2) cut(pair);
        }) == Words{"c: broken"});
  CHECK(of(2, cut) == Words{"a-b: broken"});
  const auto all = nodes(3);
  CHECK(judge_network(all, pairs(3,
                                 [&](PairFacts& pair) {
                                   if (is(pair, 1, 2)) cut(pair);
                                 }))
            .blamed.at(0)
            .what == "b and c have no connection: timed out");
}

TEST_CASE("a pair of which one can't open connections is told with the direction",
          "[selftest][network]") {
  CHECK(of(3, [](PairFacts& pair) {
          if (is(pair, 0, 1)) pair.high_to_low_refused = "refused";
        }) == Words{"b>a: one-way"});
  const auto all = nodes(3);
  const auto verdict = judge_network(all, pairs(3, [](PairFacts& pair) {
                                       if (pair.low == 0) pair.high_to_low_refused = "refused";
                                     }));
  CHECK(blamed(verdict, all) == Words{"a: one-way"});
  CHECK(verdict.blamed[0].what == "a takes no connection of b and c, but opens them: refused");
}

TEST_CASE("a node that answers late is told, with bandwidth as usual", "[selftest][network]") {
  CHECK(of(3, [](PairFacts& pair) {
          if (pair.high == 2) pair.rtt_us = 100'000;
        }) == Words{"c: delayed"});
  CHECK(of(4, [](PairFacts& pair) {
          if (is(pair, 0, 3)) pair.rtt_us = 5000;
        }) == Words{"a-d: delayed"});
  CHECK(of(3, [](PairFacts& pair) {
          if (pair.high == 2) pair.rtt_us = 200;  // four times, of which a busy core makes as much
        }).empty());
}

TEST_CASE("what is slow and late is told with both", "[selftest][network]") {
  const auto all = nodes(3);
  const auto verdict = judge_network(all, pairs(3, [](PairFacts& pair) {
                                       if (!is(pair, 0, 2)) return;
                                       pair.mbit_to_high = pair.mbit_to_low = 120;
                                       pair.rtt_us = 40'000;
                                     }));
  REQUIRE(verdict.blamed.size() == 1);
  CHECK(verdict.blamed[0].what ==
        "between a and c: 120 Mbit/s and 120 Mbit/s, where 9.4 Gbit/s are usual; a round trip "
        "takes 40.0 ms (usual: 0.050 ms)");
}

TEST_CASE("all pairs in trouble are told as pairs: it may be the switch", "[selftest][network]") {
  CHECK(of(
            3, [](PairFacts& pair) { pair.mbit_to_high = pair.mbit_to_low = kSlow; }, 10'000)
            .size() == 3);
}

TEST_CASE("a broken node doesn't hide a slow link", "[selftest][network]") {
  CHECK(of(4, [](PairFacts& pair) {
          if (pair.high == 3) pair.low_to_high_refused = pair.high_to_low_refused = "timed out";
          if (is(pair, 0, 1)) pair.mbit_to_high = pair.mbit_to_low = kSlow;
        }) == Words{"d: broken", "a-b: slow"});
}

TEST_CASE("a node whose rank is stuck is named alone", "[selftest][network]") {
  auto all = nodes(3);
  all[1].trouble = "its rank is stuck";
  const auto verdict = judge_network(all, pairs(3, [](PairFacts& pair) {
                                       if (pair.low == 1 || pair.high == 1)
                                         pair.low_to_high_refused = pair.high_to_low_refused = "no";
                                     }));
  CHECK(blamed(verdict, all) == Words{"b: broken"});
}

TEST_CASE("of two measurements the better counts", "[selftest][network]") {
  const PairFacts slow{0, 1, "", "", "", 900, kSlow, kFast, 1};
  const PairFacts fast{0, 1, "", "", "", 40, kFast, kSlow, 1};
  const PairFacts failed{0, 1, "refused", "refused", "", 0, 0, 0, 1};
  const auto both = better_of(slow, fast);
  CHECK(both.mbit_to_high == kFast);
  CHECK(both.mbit_to_low == kFast);
  CHECK(both.rtt_us == 40);
  CHECK(both.attempts == 2);
  for (const auto& better : {better_of(failed, slow), better_of(slow, failed)}) {
    CHECK(better.is_measured());
    CHECK(better.mbit_to_high == kSlow);
  }
  CHECK_FALSE(better_of(failed, failed).is_connected());
}

TEST_CASE("rates and times are written in units that people read", "[selftest][network]") {
  CHECK(rate_text(9412) == "9.41 Gbit/s");
  CHECK(rate_text(999.9) == "1 Gbit/s");
  CHECK(rate_text(4.84) == "4.84 Mbit/s");
  CHECK(rate_text(0.012) == "12 kbit/s");
  CHECK(rate_text(0) == "0 Mbit/s");
  CHECK(time_text(52) == "0.052 ms");
  CHECK(time_text(104'300) == "104.3 ms");
}

}  // namespace acc::selftest
