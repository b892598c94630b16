#pragma once

#include "rendezvous/messages.hpp"

#include <cstdint>
#include <map>
#include <set>
#include <string>

namespace acc::rendezvous {

/// What nodes have replayed of their workers' writes to the store of an inherited round (pure). A
/// replay whose link breaks is repeated on the next one, and a node's share of a counter must not
/// be added twice.
class RestoredWrites {
 public:
  /// The store was emptied for a round. `is_inherited`: the round began under another coordinator,
  /// so its members replay their writes. Of any other round the store has seen all writes itself.
  void begin(bool is_inherited);

  /// A part of this agent's replay. @return whether it must be restored: it wasn't before
  [[nodiscard]] bool take(const NodeId& agent, const KvRestore& part);
  /// The agent's replay has ended.
  void complete(const NodeId& agent);

  [[nodiscard]] bool is_complete(const NodeId& agent) const;
  /// Replays may arrive. Of a node whose replay is complete, too, where it hasn't learnt that.
  [[nodiscard]] bool is_expecting() const noexcept { return is_inherited_; }

 private:
  struct Replay {
    std::uint64_t incarnation = 0;
    bool is_complete = false;
    std::set<std::string, std::less<>> shares;  ///< keys; empty once it is complete
  };
  Replay& replay_of(const NodeId& agent);

  bool is_inherited_ = false;
  std::map<std::string, Replay, std::less<>> replays_;  ///< by name of the node
};

}  // namespace acc::rendezvous
