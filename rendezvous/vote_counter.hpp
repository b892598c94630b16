#pragma once

#include "rendezvous/messages.hpp"
#include "rendezvous/peer.hpp"

#include <map>
#include <optional>
#include <vector>

/// Counter of the votes of agents that lost their coordinator (pure). A vote is a Join whose sender
/// knows the newest round; it counts as long as its connection lasts.
namespace acc::rendezvous {

struct Vote {
  PeerId peer{0};  ///< 0: the counting agent's own vote
  Join join;
  std::string address;  ///< as reported by the socket
};

/// A majority of the newest round voted for this node.
struct ElectionResult {
  Term term;
  Epoch last;               ///< of the newest round known to a voter
  std::uint32_t nodes = 0;  ///< in that round
  RestartLedger ledger;
  std::vector<Vote> votes;  ///< including agents that know only an older round
  /// Of that round's nodes, by node rank, as far as its assignment told them; for messages.
  std::map<NodeRank, std::string> names;
  /// The node of the lost coordinator, if it closed the winner's connection; empty: it fell silent.
  std::string closed_by;
};

class VoteCounter {
 public:
  void add(Vote vote);
  void remove(PeerId peer);
  void clear() { votes_.clear(); }
  [[nodiscard]] bool empty() const { return votes_.empty(); }
  /// Votes for the newest round known here, and the number needed.
  struct Count {
    std::uint32_t have = 0;
    std::uint32_t needed = 0;
  };
  [[nodiscard]] Count count() const;
  /// `candidate`: the winner's node rank + 1; 0: a coordinator that is no member.
  [[nodiscard]] std::optional<ElectionResult> result(std::uint32_t candidate) const;
  [[nodiscard]] std::vector<PeerId> peers() const;

 private:
  [[nodiscard]] const Join* newest() const;
  std::map<PeerId, Vote> votes_;
};

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

}  // namespace acc::rendezvous
