#pragma once

#include "agent/evidence/rank_evidence.hpp"
#include "agent/watch/hang_detector.hpp"
#include "common/ids.hpp"

#include <string>
#include <vector>

namespace acc::agent {

/// The rank that a hang is blamed on, and why, in words.
struct HangCause {
  /// Of this node: the culprit, or one that waits for the culprit on another node.
  LocalRank worker{0};
  bool is_here = true;  ///< the culprit is; false: its node finds the same, and reports it
  std::string text;
};

/// In the same order on all nodes, or they would name different ranks.
[[nodiscard]] std::vector<evidence::RankSummary> ranks_of(
    const std::vector<evidence::NodeEvidence>& nodes);

/// Compares what all nodes found about their silent ranks (pure): the same culprit on each of them.
/// @param silent  the workers of this node that are; where there are none only a culprit of this
/// node has its text
/// @param ranks  of this node's workers, by local rank
/// @param nodes  with one silent rank at least
[[nodiscard]] HangCause cause_of_hang(const std::vector<SilentRank>& silent,
                                      const std::vector<Rank>& ranks,
                                      const std::vector<evidence::NodeEvidence>& nodes);

/// "rank 2, of which no heartbeat is known, or rank 1, which sends heartbeats of one step": those
/// for which silent ranks of another node may wait.
[[nodiscard]] std::string awaited_words(const std::vector<std::uint32_t>& starting,
                                        const std::vector<std::uint32_t>& stuck);

}  // namespace acc::agent
