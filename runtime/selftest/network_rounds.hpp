#pragma once

#include <set>
#include <span>
#include <utility>
#include <vector>

/// Which nodes are measured with which, round by round: in a round each node is in at most one
/// pair, so that no pair takes bandwidth from another (pure).
namespace acc::selftest {

using NodePair = std::pair<int, int>;  ///< the lower number first
using Round = std::vector<NodePair>;

/// Up to so many nodes every pair is measured. With more each node has two or three partners.
inline constexpr int kAllPairsUpTo = 16;

/// Every pair once, in as few rounds as there can be: n - 1, or n where n is odd.
[[nodiscard]] std::vector<Round> all_pairs(int nodes);
/// (0, 1), (2, 3) …; of an odd number the last with the first, in a round of its own.
[[nodiscard]] std::vector<Round> neighbours(int nodes);
/// The fastest node with the slowest, the second with the second but one …, where the two haven't
/// been measured: a slow node is slow with two partners. Of an odd number the middle one is left
/// out.
/// @param speed  of each node, the higher the faster
[[nodiscard]] Round fastest_with_slowest(std::span<const double> speed,
                                         const std::set<NodePair>& measured);
/// For each node with fewer than two partners the fastest one that it hasn't met: with one alone
/// nothing tells which of both is slow.
[[nodiscard]] std::vector<NodePair> second_partners(std::span<const double> speed,
                                                    const std::set<NodePair>& measured);
/// These pairs in as many rounds as it takes.
[[nodiscard]] std::vector<Round> in_rounds(const std::vector<NodePair>& pairs);

}  // namespace acc::selftest
