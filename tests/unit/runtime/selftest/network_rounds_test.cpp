#include "runtime/selftest/network_rounds.hpp"

#include <catch2/catch.hpp>

namespace acc::selftest {
namespace {

bool is_round(const Round& round) {
  std::set<int> busy;
  for (const auto& [one, other] : round)
    if (one >= other || !busy.insert(one).second || !busy.insert(other).second) return false;
  return true;
}

}  // namespace

TEST_CASE("every pair is measured once, and no node with two at a time", "[selftest][network]") {
  for (int nodes = 2; nodes <= 17; ++nodes) {
    CAPTURE(nodes);
    const auto rounds = all_pairs(nodes);
    CHECK(static_cast<int>(rounds.size()) == nodes - 1 + nodes % 2);
    std::set<NodePair> seen;
    for (const auto& round : rounds) {
      CHECK(is_round(round));
      for (const auto& pair : round) CHECK(seen.insert(pair).second);
    }
    CHECK(static_cast<int>(seen.size()) == nodes * (nodes - 1) / 2);
  }
  CHECK(all_pairs(1).empty());
}

TEST_CASE("with many nodes each has two partners or three", "[selftest][network]") {
  for (const int nodes : {17, 64, 101}) {
    CAPTURE(nodes);
    std::set<NodePair> measured;
    std::vector<int> partners(static_cast<std::size_t>(nodes), 0);
    const auto add = [&](const Round& round) {
      CHECK(is_round(round));
      for (const auto& pair : round) {
        CHECK(measured.insert(pair).second);
        ++partners[static_cast<std::size_t>(pair.first)];
        ++partners[static_cast<std::size_t>(pair.second)];
      }
    };
    for (const auto& round : neighbours(nodes)) add(round);
    std::vector<double> speed;
    for (int i = 0; i < nodes; ++i) speed.push_back(i * 37 % 11);
    for (int i = 0; i < 2; ++i) add(fastest_with_slowest(speed, measured));
    for (const auto& round : in_rounds(second_partners(speed, measured))) add(round);
    for (const auto count : partners) CHECK(count >= 2);
  }
}

TEST_CASE("the fastest is paired with the slowest that it hasn't met", "[selftest][network]") {
  const std::vector<double> speed{9, 1, 5, 3};
  CHECK(fastest_with_slowest(speed, {}) == Round{{0, 1}, {2, 3}});
  CHECK(fastest_with_slowest(speed, {{0, 1}, {2, 3}}) == Round{{0, 3}, {1, 2}});
}

TEST_CASE("pairs to be measured again share rounds where they can", "[selftest][network]") {
  const auto rounds = in_rounds({{0, 1}, {2, 3}, {0, 2}, {1, 3}});
  CHECK(rounds.size() == 2);
  for (const auto& round : rounds) CHECK(is_round(round));
}

}  // namespace acc::selftest
