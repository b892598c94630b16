#include "agent/worker_start.hpp"

#include <climits>
#include <utility>

namespace acc::agent {

WorkerStart::WorkerStart(Spawner& spawner, Launch launched)
    : launch{std::move(launched)}, held{spawner, launch.ranks.count} {
  environments.reserve(launch.ranks.count);
  masks.reserve(launch.cores.size());
  for (const auto& cores : launch.cores) masks.push_back(affinity_mask(cores));
}

std::vector<unsigned long> affinity_mask(const std::vector<std::uint32_t>& cores) {
  constexpr std::size_t kBits = sizeof(unsigned long) * CHAR_BIT;
  std::vector<unsigned long> mask;
  for (const auto core : cores) {
    if (core / kBits >= mask.size()) mask.resize(core / kBits + 1);
    mask[core / kBits] |= 1UL << (core % kBits);
  }
  return mask;
}

}  // namespace acc::agent
