#include "agent/watch/page_evidence.hpp"

#include "agent/watch/stack_collection.hpp"
#include "agent/worker_group.hpp"

#include <algorithm>
#include <utility>

namespace acc::agent {

namespace {

void add_beat(const heartbeat::Beat& beat, evidence::RankSummary& summary) {
  summary.has_beaten = beat.beats > 0;
  summary.step = beat.step;
  summary.collectives = beat.collective.sequence;
  summary.is_inside = beat.collective.is_inside;
  summary.operation = heartbeat::operation_name(beat.collective.operation);
}

}  // namespace

evidence::NodeEvidence evidence_of_page(const PageFacts& facts, const Suspects& suspects,
                                        const std::vector<SilentRank>& silent) {
  evidence::NodeEvidence found{.node = facts.node, .ranks = {}, .tools = {}};
  found.finished = finished_ranks(facts.workers, facts.now);
  for (const auto& record : facts.workers) {
    const auto worker = record.local_rank;
    const auto* beat = worker.value() < facts.beats.size() ? &facts.beats[worker.value()] : nullptr;
    const auto one = std::ranges::find(silent, worker, &SilentRank::rank);
    evidence::RankSummary summary;
    summary.is_silent = one != silent.end();
    summary.is_overdue = summary.is_silent && one->is_overdue();
    summary.is_stuck = suspects.is_still_stuck(worker, facts.beats);
    summary.is_starting = beat != nullptr && beat->beats < heartbeat::kFirstBeats;
    if (!summary.is_silent && !summary.is_stuck && !summary.is_starting) continue;
    summary.rank = record.rank;
    summary.local_rank = worker;
    summary.node = facts.node;
    summary.pid = record.pid;
    if (beat != nullptr) add_beat(*beat, summary);
    evidence::RankEvidence rank;
    rank.summary = std::move(summary);
    found.ranks.push_back(std::move(rank));
  }
  return found;
}

void mark_suspects(const Suspects& suspects, const std::vector<heartbeat::Beat>& now,
                   evidence::NodeEvidence& evidence) {
  const auto silent = suspects.still_silent(now);
  for (auto& rank : evidence.ranks) {
    rank.summary.is_silent = std::ranges::any_of(
        silent, [&](const SilentRank& one) { return one.rank == rank.summary.local_rank; });
    rank.summary.is_stuck = suspects.is_still_stuck(rank.summary.local_rank, now);
  }
}

}  // namespace acc::agent
