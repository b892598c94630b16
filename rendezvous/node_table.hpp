#pragma once

#include "rendezvous/messages.hpp"
#include "rendezvous/peer.hpp"

#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

namespace acc::rendezvous {

using NodeIndex = std::size_t;
inline constexpr NodeIndex kNoNode = static_cast<NodeIndex>(-1);

/// The nodes whose agents joined, by name, connection and wanted rank; a node keeps its index until
/// it is erased. Pure.
class NodeTable {
 public:
  struct Node {
    Join join;  ///< the newest one
    std::string address;
    std::optional<PeerId> peer;  ///< nothing: not connected
    Instant heard{};             ///< time of its latest frame, by our clock
    bool has_workers = false;    ///< of any round; it gets no place before its Stopped
    bool told_spare = false;
    std::uint64_t arrival = 0;  ///< counts Joins
    /// Another agent, from the same host, that asks for its place, and since when.
    struct Challenge {
      std::uint64_t incarnation = 0;
      Instant since{};
    };
    std::optional<Challenge> challenge{};
    Instant replay_answered{};  ///< when it was last shown, in a replay of it, that we hear it
  };

  /// Adds the node, or replaces the entry of the node with this name.
  NodeIndex enter(PeerId peer, const Join& join, const std::string& address, Instant now);
  void erase(NodeIndex index);
  /// The connection is lost, the node stays.
  void disconnect(NodeIndex index);

  [[nodiscard]] Node& operator[](NodeIndex index) { return *nodes_[index]; }
  [[nodiscard]] const Node& operator[](NodeIndex index) const { return *nodes_[index]; }
  [[nodiscard]] std::optional<NodeIndex> by_peer(PeerId peer) const;
  [[nodiscard]] std::optional<NodeIndex> by_name(const std::string& name) const;
  /// The node that requested this rank last.
  [[nodiscard]] std::optional<NodeIndex> by_wanted(NodeRank rank) const;
  /// Ordered by connection; valid until the table changes.
  [[nodiscard]] const std::map<PeerId, NodeIndex>& connected() const { return by_peer_; }
  [[nodiscard]] Instant last_arrival() const { return last_arrival_; }
  /// After a pause of this process: no node counts as silent for that time.
  void hear_all(Instant now);
  void forget_spares();

 private:
  void release_wanted(NodeIndex index);

  std::vector<std::optional<Node>> nodes_;
  std::vector<NodeIndex> free_;
  std::unordered_map<std::string, NodeIndex> by_name_;
  std::map<PeerId, NodeIndex> by_peer_;
  std::unordered_map<std::uint32_t, NodeIndex> by_wanted_;
  std::uint64_t arrivals_ = 0;
  Instant last_arrival_{};
};

}  // namespace acc::rendezvous
