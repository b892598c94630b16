#include "rendezvous/vote_counter.hpp"

#include "rendezvous/planted.hpp"

#include <algorithm>

namespace acc::rendezvous {

void VoteCounter::add(Vote vote) { votes_.insert_or_assign(vote.peer, std::move(vote)); }
void VoteCounter::remove(PeerId peer) { votes_.erase(peer); }

const Join* VoteCounter::newest() const {
  const Join* newest = nullptr;
  for (const auto& [peer, vote] : votes_) {
    if (newest == nullptr || vote.join.epoch > newest->epoch) newest = &vote.join;
  }
  return newest;
}

// Only an agent that knows the newest round may be one of its members; two connections of one node
// are one vote.
VoteCounter::Count VoteCounter::count() const {
  const Join* const last = newest();
  if (last == nullptr || last->epoch.term.number == 0 || last->nodes == 0) return {0, 1};
  std::vector<NodeRank> ranks;
  for (const auto& [peer, vote] : votes_) {
    if (vote.join.epoch == last->epoch) ranks.push_back(vote.join.node_rank);
  }
  std::ranges::sort(ranks);
  ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
  const auto needed = planted::elect_without_majority ? 1U : majority_of(last->nodes);
  return {static_cast<std::uint32_t>(ranks.size()), needed};
}

std::optional<ElectionResult> VoteCounter::result(std::uint32_t candidate) const {
  const auto [have, needed] = count();
  if (have < needed) return std::nullopt;
  const Join& last = *newest();
  ElectionResult result{{0, candidate}, last.epoch, last.nodes, last.ledger, {}, {}, {}};
  for (const auto& [peer, vote] : votes_) {
    result.term.number = std::max(result.term.number, vote.join.vote.number + 1);
    result.votes.push_back(vote);
  }
  return result;
}

std::vector<PeerId> VoteCounter::peers() const {
  std::vector<PeerId> peers;
  for (const auto& [peer, vote] : votes_) peers.push_back(peer);
  return peers;
}

}  // namespace acc::rendezvous
