#pragma once

#include "rendezvous/node_table.hpp"

#include <cstddef>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

namespace acc::rendezvous {

/// A node's part in the newest assigned round.
struct Place {
  NodeIndex node = kNoNode;  ///< kNoNode: its agent has not joined since the election
  NodeId id;                 ///< for messages, even after the node was erased
  std::string told_name;     ///< by others, for messages until its node names itself
  RankRange ranks{Rank{0}, 0};
  NodeState state = NodeState::assigned;
  std::uint32_t ready_heartbeat = 0;  ///< of its Ready; 0: none yet
  bool has_completed = false;         ///< all its workers had exited with 0, before any stop
  bool gone = false;                  ///< lost, or left: takes no further part in this round
  std::string why_gone;
  Instant heard{};
  /// No worker of it lives after this time, whatever happens to the node.
  Instant lease_end{};
  std::optional<Instant> link_lost;
};

/// The places of the newest round by node rank, by node and by name. Pure.
class PlaceTable {
 public:
  [[nodiscard]] bool empty() const { return places_.empty(); }
  [[nodiscard]] std::size_t size() const { return places_.size(); }
  [[nodiscard]] Place& operator[](std::size_t rank) { return places_[rank]; }
  [[nodiscard]] const Place& operator[](std::size_t rank) const { return places_[rank]; }
  [[nodiscard]] auto begin() { return places_.begin(); }
  [[nodiscard]] auto end() { return places_.end(); }
  [[nodiscard]] auto begin() const { return places_.begin(); }
  [[nodiscard]] auto end() const { return places_.end(); }
  [[nodiscard]] const Place& back() const { return places_.back(); }

  /// The next round, without places yet.
  void begin(const Epoch& epoch);
  /// Of the newest round, as its members were told: a successor's own is newer.
  [[nodiscard]] const Epoch& epoch() const { return epoch_; }
  /// All members of the newest round know it. Until that is true of a later one, a majority of this
  /// one can elect a coordinator that knows no later one.
  void establish() { is_established_ = true; }
  /// Members of the last established round; before there is one, of the first that was assigned.
  [[nodiscard]] std::size_t established_size() const;
  /// A node's rank in that round; nothing: it has none there.
  [[nodiscard]] std::optional<NodeRank> established_rank(const std::string& name) const;
  /// What a member is told of that round with the newest one, which isn't established yet.
  [[nodiscard]] EstablishedRound established_before(const std::string& name) const;
  /// For the order of the next round: the node's rank in the established one; behind all of these
  /// come members of the newest alone. Nothing: a newcomer.
  [[nodiscard]] std::optional<std::size_t> rank_before(const std::string& name) const;
  /// Appends a place, with the next node rank.
  void add(Place place);
  /// Places without names, until their nodes join: of a round that a predecessor began.
  void assign_unknown(const Epoch& epoch, std::size_t count, const Place& place);
  /// Names a place after the node that reports this rank.
  void name(std::size_t rank, const NodeId& id, RankRange ranks);
  /// The node is back in its place.
  void occupy(std::size_t rank, NodeIndex node);
  /// The node has left its place; the place keeps its name.
  void vacate(NodeIndex node);

  [[nodiscard]] std::optional<std::size_t> of_node(NodeIndex node) const;
  [[nodiscard]] std::optional<std::size_t> of_name(const std::string& name) const;
  /// The node's name for messages; empty: nobody has told it.
  [[nodiscard]] const std::string& name_of(std::size_t rank) const;
  /// "node b (node rank 1)", for messages.
  [[nodiscard]] std::string describe(std::size_t rank) const;
  /// Nodes all of whose workers had exited with 0 before any stop, so many at most.
  [[nodiscard]] std::vector<NodeRanks> completed(std::size_t most) const;

 private:
  Epoch epoch_;
  std::vector<Place> places_;
  std::unordered_map<NodeIndex, std::size_t> by_node_;
  std::unordered_map<std::string, std::size_t> by_name_;
  [[nodiscard]] bool is_newest_established() const {
    return is_established_ || established_.size == 0;
  }
  bool is_established_ = false;  ///< the newest round
  struct {                       ///< … or else this one
    std::size_t size = 0;
    std::unordered_map<std::string, NodeRank> ranks;  ///< by name, as far as they were told
  } established_;
};

}  // namespace acc::rendezvous
