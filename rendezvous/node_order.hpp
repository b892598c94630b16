#pragma once

#include "rendezvous/node_table.hpp"

#include <cstddef>
#include <optional>
#include <string_view>
#include <vector>

namespace acc::rendezvous {

/// A node that may get a place in the next round.
struct Candidate {
  NodeIndex node = kNoNode;
  const Join* join = nullptr;
  std::uint64_t arrival = 0;
  std::optional<std::size_t> rank_before;  ///< PlaceTable::rank_before
};

/// The nodes of the next round by node rank, at most `nodes_max` of the candidates: members of the
/// established round before those of a later one and newcomers, then in order of arrival. A
/// requested or previous rank is kept if it is free. Pure.
[[nodiscard]] std::vector<NodeIndex> order_nodes(std::vector<Candidate> candidates,
                                                 std::uint32_t nodes_min, std::uint32_t nodes_max);

/// True if a sorts before b with numbers compared as numbers: node2 before node10.
[[nodiscard]] bool natural_less(std::string_view a, std::string_view b);

}  // namespace acc::rendezvous
