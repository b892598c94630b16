#include "runtime/selftest/network_rounds.hpp"

#include <algorithm>
#include <numeric>

namespace acc::selftest {
namespace {

NodePair ordered(int one, int other) { return {std::min(one, other), std::max(one, other)}; }

}  // namespace

// The circle method: one node stays, the others move on by a place from round to round; who stand
// opposite are a pair.
std::vector<Round> all_pairs(int nodes) {
  const int places = nodes + nodes % 2;  // with a place where nobody stands
  std::vector<Round> rounds;
  for (int number = 0; number + 1 < places; ++number) {
    Round round;
    const auto at = [&](int place) {
      return place == 0 ? 0 : 1 + (place - 1 + number) % (places - 1);
    };
    for (int i = 0; i < places / 2; ++i) {
      const auto pair = ordered(at(i), at(places - 1 - i));
      if (pair.second < nodes) round.push_back(pair);
    }
    std::ranges::sort(round);
    if (!round.empty()) rounds.push_back(std::move(round));
  }
  return rounds;
}

std::vector<Round> neighbours(int nodes) {
  std::vector<Round> rounds(1);
  for (int i = 0; i + 1 < nodes; i += 2) rounds[0].emplace_back(i, i + 1);
  if (nodes % 2 == 1 && nodes > 1) rounds.push_back({{0, nodes - 1}});
  return rounds;
}

Round fastest_with_slowest(std::span<const double> speed, const std::set<NodePair>& measured) {
  std::vector<int> order(speed.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, [&](int a, int b) {
    return speed[static_cast<std::size_t>(a)] > speed[static_cast<std::size_t>(b)];
  });
  Round round;
  while (order.size() > 1) {
    const int fast = order.front();
    order.erase(order.begin());
    // The slowest that it hasn't met.
    const auto partner = std::find_if(order.rbegin(), order.rend(), [&](int other) {
      return !measured.contains(ordered(fast, other));
    });
    if (partner == order.rend()) continue;
    round.push_back(ordered(fast, *partner));
    order.erase(std::next(partner).base());
  }
  std::ranges::sort(round);
  return round;
}

std::vector<NodePair> second_partners(std::span<const double> speed,
                                      const std::set<NodePair>& measured) {
  const auto nodes = static_cast<int>(speed.size());
  std::vector<NodePair> pairs;
  for (int node = 0; node < nodes; ++node) {
    const auto partners = std::ranges::count_if(
        measured, [&](const NodePair& pair) { return pair.first == node || pair.second == node; });
    if (partners > 1) continue;
    int best = -1;
    for (int other = 0; other < nodes; ++other)
      if (other != node && !measured.contains(ordered(node, other)) &&
          std::ranges::find(pairs, ordered(node, other)) == pairs.end() &&
          (best < 0 ||
           speed[static_cast<std::size_t>(other)] > speed[static_cast<std::size_t>(best)]))
        best = other;
    if (best >= 0) pairs.push_back(ordered(node, best));
  }
  return pairs;
}

std::vector<Round> in_rounds(const std::vector<NodePair>& pairs) {
  std::vector<Round> rounds;
  std::vector<std::set<int>> busy;
  for (const auto& [one, other] : pairs) {
    std::size_t at = 0;
    while (at < rounds.size() && (busy[at].contains(one) || busy[at].contains(other))) ++at;
    if (at == rounds.size()) {
      rounds.emplace_back();
      busy.emplace_back();
    }
    rounds[at].push_back(ordered(one, other));
    busy[at].insert({one, other});
  }
  return rounds;
}

}  // namespace acc::selftest
