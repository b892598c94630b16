#include "agent/worker_start.hpp"

#include <climits>
#include <utility>

namespace acc::agent {

WorkerStart::WorkerStart(Spawner& spawner, Launch launched)
    : launch{std::move(launched)}, held{spawner, launch.ranks.count} {
  environments.reserve(launch.ranks.count);
  requests.reserve(launch.ranks.count);
  pmi.reserve(launch.ranks.count);
  masks.reserve(launch.cores.size());
  for (const auto& cores : launch.cores) masks.push_back(affinity_mask(cores));
}

std::vector<Preloader::Worker> warm_workers(const WorkerStart& start) {
  std::vector<Preloader::Worker> workers;
  workers.reserve(start.requests.size());
  for (std::size_t i = 0; i < start.requests.size(); ++i) {
    const SpawnRequest& request = start.requests[i];
    workers.push_back({.local = LocalRank{static_cast<std::uint32_t>(i)},
                       .streams = {request.stdin_fd, request.stdout_fd, request.stderr_fd},
                       .pmi = request.pmi_fd,
                       .envp = request.envp,
                       .cores = i < start.launch.cores.size() ? start.launch.cores[i]
                                                              : std::vector<std::uint32_t>{},
                       .takes_terminal = request.terminal_fd >= 0});
  }
  return workers;
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
