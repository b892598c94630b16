#pragma once

#include "common/ids.hpp"
#include "rendezvous/messages.hpp"

#include <cstddef>
#include <cstdint>
#include <vector>

/// How many nodes of a round make a coordinator (pure).
namespace acc::rendezvous {

/// More than half: the votes that a successor needs in a round of n nodes.
[[nodiscard]] constexpr std::uint32_t majority_of(std::uint32_t n) { return n / 2 + 1; }
/// The nodes that the current coordinator needs so that the others can't form a majority.
[[nodiscard]] constexpr std::uint32_t quorum_of(std::uint32_t n) { return (n + 1) / 2; }
/// Can a round of `nodes` nodes reach a majority without its coordinator? Two nodes, one of which
/// coordinates, can't.
/// @param standbys  of its assignment, which never lists the coordinator's own node
[[nodiscard]] constexpr bool can_lose_coordinator(std::uint32_t nodes, std::size_t standbys) {
  const bool coordinator_was_member = nodes <= kMaxStandbys && standbys < nodes;
  return nodes - (coordinator_was_member ? 1 : 0) >= majority_of(nodes);
}

/// Members of the established round that an election by a later one needs as well.
struct EstablishedMajority {
  std::uint32_t nodes = 0;        ///< in the established round
  std::uint32_t needed = 0;       ///< 0: the later round is established itself
  std::vector<NodeRank> members;  ///< that voted; ranks in the later round
};

}  // namespace acc::rendezvous
