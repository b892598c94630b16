#pragma once

#include "rendezvous/majority.hpp"
#include "rendezvous/messages.hpp"
#include "rendezvous/peer.hpp"

#include <map>
#include <optional>
#include <vector>

/// Counter of the votes of agents that lost their coordinator (pure). A vote is a Join whose sender
/// knows the newest round; it counts as long as its connection lasts. Unless a voter knows that all
/// members of that round know it, a majority of the established one before it is needed, too.
namespace acc::rendezvous {

struct Vote {
  PeerId peer{0};  ///< 0: the counting agent's own vote
  Join join;
  std::string address;  ///< as reported by the socket
};

/// A majority voted for this node.
struct ElectionResult {
  Term term;
  Epoch last;               ///< of the newest round known to a voter
  std::uint32_t nodes = 0;  ///< in that round
  EstablishedMajority before;    ///< of the established round
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
  /// Of the newest round known here; if enough are of it, of the established one before it.
  struct Count {
    std::uint32_t have = 0;
    std::uint32_t needed = 0;
    std::uint32_t nodes = 0;  ///< in that round; 0: no vote
  };
  [[nodiscard]] Count count() const;
  /// `candidate`: the winner's node rank + 1; 0: a coordinator that is no member.
  [[nodiscard]] std::optional<ElectionResult> result(std::uint32_t candidate) const;
  [[nodiscard]] std::vector<PeerId> peers() const;

 private:
  [[nodiscard]] const Join* newest() const;
  [[nodiscard]] std::vector<const Join*> voters(const Join& newest) const;
  std::map<PeerId, Vote> votes_;
};

}  // namespace acc::rendezvous
