#include "rendezvous/place_table.hpp"

namespace acc::rendezvous {

void PlaceTable::begin(const Epoch& epoch) {
  if (is_established_ || established_.size == 0) {
    established_.ranks.clear();
    for (std::size_t i = 0; i < places_.size(); ++i)
      established_.ranks.emplace(name_of(i), NodeRank{static_cast<std::uint32_t>(i)});
    established_.size = places_.size();
  }
  is_established_ = false;
  epoch_ = epoch;
  places_.clear();
  by_node_.clear();
  by_name_.clear();
}

std::size_t PlaceTable::established_size() const {
  return is_newest_established() ? size() : established_.size;
}

std::optional<NodeRank> PlaceTable::established_rank(const std::string& name) const {
  if (is_newest_established()) {
    const auto rank = of_name(name);
    return rank ? std::optional{NodeRank{static_cast<std::uint32_t>(*rank)}} : std::nullopt;
  }
  const auto found = established_.ranks.find(name);
  return found != established_.ranks.end() ? std::optional{found->second} : std::nullopt;
}

EstablishedRound PlaceTable::established_before(const std::string& name) const {
  if (is_newest_established()) return {};
  return {static_cast<std::uint32_t>(established_.size), established_rank(name)};
}

std::optional<std::size_t> PlaceTable::rank_before(const std::string& name) const {
  if (const auto rank = established_rank(name)) return rank->value();
  const auto rank = of_name(name);
  return rank ? std::optional{established_size() + *rank} : std::nullopt;
}

void PlaceTable::add(Place place) {
  if (place.node != kNoNode) by_node_[place.node] = places_.size();
  by_name_[place.id.name] = places_.size();
  places_.push_back(std::move(place));
}

void PlaceTable::assign_unknown(const Epoch& epoch, std::size_t count, const Place& place) {
  begin(epoch);
  places_.assign(count, place);
  establish();  // an election by it needs a majority of it
}

void PlaceTable::name(std::size_t rank, const NodeId& id, RankRange ranks) {
  places_[rank].id = id;
  places_[rank].ranks = ranks;
  by_name_[id.name] = rank;
}

void PlaceTable::occupy(std::size_t rank, NodeIndex node) {
  places_[rank].node = node;
  by_node_[node] = rank;
}

void PlaceTable::vacate(NodeIndex node) {
  const auto rank = of_node(node);
  if (!rank) return;
  places_[*rank].node = kNoNode;
  by_node_.erase(node);
}

std::optional<std::size_t> PlaceTable::of_node(NodeIndex node) const {
  const auto found = by_node_.find(node);
  return found != by_node_.end() ? std::optional{found->second} : std::nullopt;
}

std::optional<std::size_t> PlaceTable::of_name(const std::string& name) const {
  const auto found = by_name_.find(name);
  return found != by_name_.end() ? std::optional{found->second} : std::nullopt;
}

const std::string& PlaceTable::name_of(std::size_t rank) const {
  const auto& place = places_[rank];
  return place.id.name.empty() ? place.told_name : place.id.name;
}

std::string PlaceTable::describe(std::size_t rank) const {
  const auto& name = name_of(rank);
  const std::string text = "node rank " + std::to_string(rank);
  return name.empty() ? text : "node " + name + " (" + text + ")";
}

std::vector<NodeRanks> PlaceTable::completed(std::size_t most) const {
  std::vector<NodeRanks> nodes;
  for (std::size_t i = 0; i < places_.size() && nodes.size() < most; ++i)
    if (places_[i].has_completed) nodes.push_back({name_of(i), places_[i].ranks});
  return nodes;
}

}  // namespace acc::rendezvous
