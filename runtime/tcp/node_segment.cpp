#include "runtime/tcp/node_segment.hpp"

#include <utility>

namespace acc::runtime::tcp {

namespace {

shm::Layout layout_for(const RankPlacement& placement) {
  return shm::Layout::with_staging(
      static_cast<int>(placement.local_ranks().size()),
      2 * NodeSegment::staging_bytes(static_cast<std::size_t>(placement.size())));
}

shm::Peers::Options peers_options(const RankPlacement& placement, NodeSegment::Options& options) {
  shm::Peers::Options made;
  made.rank = static_cast<int>(placement.index);
  made.size = static_cast<int>(placement.local_ranks().size());
  for (const int rank : placement.local_ranks())
    made.ranks.push_back(options.ranks.at(static_cast<std::size_t>(rank)));
  made.group = std::move(options.group);
  made.check = false;  // calls are compared over all hosts
  made.is_whole_group = false;
  made.on_break = std::move(options.on_break);
  made.find_late = std::move(options.find_late);
  return made;
}

}  // namespace

std::size_t NodeSegment::bytes(const RankPlacement& placement) {
  return layout_for(placement).bytes;
}

NodeSegment::NodeSegment(UniqueFd memory, const RankPlacement& placement, Options options)
    : placement_{placement},
      ranks_{options.ranks},
      peers_{std::move(memory), layout_for(placement), peers_options(placement, options)} {}

std::string NodeSegment::describe(int rank) const {
  return shm::describe(ranks_.at(static_cast<std::size_t>(rank)));
}

std::vector<shm::RankStatus> NodeSegment::statuses() const {
  std::vector<shm::RankStatus> all(ranks_.size());
  for (std::size_t i = 0; i < size(); ++i)
    all[static_cast<std::size_t>(placement_.local_ranks()[i])] = peers_.status(static_cast<int>(i));
  return all;
}

}  // namespace acc::runtime::tcp
