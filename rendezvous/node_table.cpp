#include "rendezvous/node_table.hpp"

namespace acc::rendezvous {

namespace {

template <class Map, class Key>
std::optional<NodeIndex> find_in(const Map& map, const Key& key) {
  const auto found = map.find(key);
  return found != map.end() ? std::optional{found->second} : std::nullopt;
}

}  // namespace

NodeIndex NodeTable::enter(PeerId peer, const Join& join, const std::string& address, Instant now) {
  NodeIndex index = kNoNode;
  if (const auto known = by_name(join.node.name)) {
    index = *known;
    release_wanted(index);  // it may want a different rank now
    disconnect(index);
  } else if (!free_.empty()) {
    index = free_.back();
    free_.pop_back();
  } else {
    index = nodes_.size();
    nodes_.emplace_back();
  }
  nodes_[index] = Node{join, address, peer, now, false, false, ++arrivals_};
  by_name_[join.node.name] = index;
  by_peer_[peer] = index;
  if (join.wanted) by_wanted_[join.wanted->value()] = index;
  last_arrival_ = now;
  return index;
}

void NodeTable::erase(NodeIndex index) {
  by_name_.erase(nodes_[index]->join.node.name);
  release_wanted(index);
  disconnect(index);
  nodes_[index].reset();
  free_.push_back(index);
}

void NodeTable::disconnect(NodeIndex index) {
  auto& peer = nodes_[index]->peer;
  if (peer) by_peer_.erase(*peer);
  peer.reset();
}

// Another node may have requested the same rank since.
void NodeTable::release_wanted(NodeIndex index) {
  const auto& wanted = nodes_[index]->join.wanted;
  if (wanted && by_wanted(*wanted) == index) by_wanted_.erase(wanted->value());
}

std::optional<NodeIndex> NodeTable::by_peer(PeerId peer) const { return find_in(by_peer_, peer); }
std::optional<NodeIndex> NodeTable::by_name(const std::string& name) const {
  return find_in(by_name_, name);
}
std::optional<NodeIndex> NodeTable::by_wanted(NodeRank rank) const {
  return find_in(by_wanted_, rank.value());
}

void NodeTable::hear_all(Instant now) {
  for (auto& node : nodes_) {
    if (node) node->heard = now;
  }
}

void NodeTable::forget_spares() {
  for (auto& node : nodes_) {
    if (node) node->told_spare = false;
  }
}

}  // namespace acc::rendezvous
