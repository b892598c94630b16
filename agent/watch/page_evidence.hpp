#pragma once

#include "agent/evidence/rank_evidence.hpp"
#include "agent/watch/suspects.hpp"
#include "common/duration.hpp"
#include "common/heartbeat_slot.hpp"

#include <string>
#include <vector>

namespace acc::agent {

struct WorkerRecord;

/// What a node knows of its ranks without their stacks.
struct PageFacts {
  const std::string& node;
  const std::vector<WorkerRecord>& workers;
  const std::vector<heartbeat::Beat>& beats;  ///< by local rank
  Instant now;
};

/// The part of a node in the judgement of a hang where its stacks could not be read: the suspects
/// that still are, and the ranks that are starting or have finished, by their heartbeats (pure).
[[nodiscard]] evidence::NodeEvidence evidence_of_page(const PageFacts& facts,
                                                      const Suspects& suspects,
                                                      const std::vector<SilentRank>& silent);

/// Says of each rank in `evidence`, which has stacks, whether it is silent or stuck by what the
/// heartbeats say now (pure).
void mark_suspects(const Suspects& suspects, const std::vector<heartbeat::Beat>& now,
                   evidence::NodeEvidence& evidence);

}  // namespace acc::agent
