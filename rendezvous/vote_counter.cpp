#include "rendezvous/vote_counter.hpp"

#include "rendezvous/planted.hpp"

#include <algorithm>

namespace acc::rendezvous {

namespace {

// The first that got its Start shows that all members had answered.
EstablishedMajority established_majority(const std::vector<const Join*>& voters) {
  EstablishedMajority before;
  for (const Join* const join : voters) {
    if (join->established.nodes == 0) return {};
    before.nodes = join->established.nodes;
    if (join->established.rank) before.members.push_back(join->node_rank);
  }
  before.needed = before.nodes > 0 ? majority_of(before.nodes) : 0;
  return before;
}

}  // namespace

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
std::vector<const Join*> VoteCounter::voters(const Join& newest) const {
  std::vector<const Join*> joins;
  for (const auto& [peer, vote] : votes_) {
    const bool is_member = vote.join.node_rank.value() < newest.nodes;
    if (vote.join.epoch == newest.epoch && is_member) joins.push_back(&vote.join);
  }
  // Of two connections of one node the one that knows of the start counts.
  std::ranges::sort(joins, {}, [](const Join* join) {
    return std::pair{join->node_rank, join->established.nodes};
  });
  const auto is_same = [](const Join* a, const Join* b) { return a->node_rank == b->node_rank; };
  joins.erase(std::unique(joins.begin(), joins.end(), is_same), joins.end());
  return joins;
}

VoteCounter::Count VoteCounter::count() const {
  const Join* const last = newest();
  if (last == nullptr || last->epoch.term.number == 0 || last->nodes == 0) return {0, 1, 0};
  const auto joins = voters(*last);
  const auto have = static_cast<std::uint32_t>(joins.size());
  if (planted::elect_without_majority) return {have, 1, last->nodes};
  const auto needed = majority_of(last->nodes);
  const auto before = established_majority(joins);
  if (have < needed || before.needed == 0) return {have, needed, last->nodes};
  return {static_cast<std::uint32_t>(before.members.size()), before.needed, before.nodes};
}

std::optional<ElectionResult> VoteCounter::result(std::uint32_t candidate) const {
  const auto [have, needed, nodes] = count();
  if (have < needed) return std::nullopt;
  const Join& last = *newest();
  ElectionResult result{{0, candidate}, last.epoch, last.nodes, established_majority(voters(last)),
                        last.ledger,    {},         {},         {}};
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
