#include "rendezvous/ballot.hpp"

#include "rendezvous/planted.hpp"

#include <algorithm>

namespace acc::rendezvous {

void Ballot::add(Vote vote) { votes_.insert_or_assign(vote.peer, std::move(vote)); }
void Ballot::remove(PeerId peer) { votes_.erase(peer); }

const Join* Ballot::newest() const {
  const Join* newest = nullptr;
  for (const auto& [peer, vote] : votes_) {
    if (newest == nullptr || vote.join.epoch > newest->epoch) newest = &vote.join;
  }
  return newest;
}

// Only who knows the newest round may be one of its members; two connections of one node are one
// vote.
Ballot::Count Ballot::count() const {
  const Join* const last = newest();
  if (last == nullptr || last->epoch.term.number == 0 || last->nodes == 0) return {0, 1};
  std::vector<NodeRank> ranks;
  for (const auto& [peer, vote] : votes_) {
    if (vote.join.epoch == last->epoch) ranks.push_back(vote.join.node_rank);
  }
  std::ranges::sort(ranks);
  const auto repeated = std::ranges::unique(ranks);
  ranks.erase(repeated.begin(), repeated.end());
  const auto needed = planted::elect_without_majority ? 1U : majority_of(last->nodes);
  return {static_cast<std::uint32_t>(ranks.size()), needed};
}

std::optional<Win> Ballot::win(std::uint32_t holder) const {
  const auto [have, needed] = count();
  if (have < needed) return std::nullopt;
  const Join& last = *newest();
  Win win{{0, holder}, last.epoch, last.nodes, last.ledger, {}};
  for (const auto& [peer, vote] : votes_) {
    win.term.number = std::max(win.term.number, vote.join.vote.number + 1);
    win.votes.push_back(vote);
  }
  return win;
}

std::vector<PeerId> Ballot::peers() const {
  std::vector<PeerId> peers;
  for (const auto& [peer, vote] : votes_) peers.push_back(peer);
  return peers;
}

}  // namespace acc::rendezvous
