#pragma once

#include "agent/evidence/rank_evidence.hpp"

#include <string>
#include <vector>

namespace acc::agent::evidence {

/// All ranks of a node as one text, as STAT shows them: ranks in the same place of the program
/// together, the smallest group first (pure).
[[nodiscard]] std::string stacks_text(const Facts& facts, const std::vector<RankEvidence>& ranks);
/// All ranks of several nodes, in the same way (pure).
[[nodiscard]] std::string text_of_nodes(Facts facts, std::vector<NodeEvidence> nodes);

}  // namespace acc::agent::evidence
