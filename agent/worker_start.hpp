#pragma once

#include "agent/environment.hpp"
#include "agent/preload/preloader.hpp"
#include "agent/spawn.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

/// The start of a round's workers while it is in progress, and the data that their exec reads: kept
/// until the last of them has called it.
namespace acc::agent {

class PmiServer;

struct Launch {
  std::string path;  ///< of the program, PATH already searched
  CStringArray argv;
  RankRange ranks;
  std::optional<LocalRank> stdin_rank;  ///< gets our stdin; the others get /dev/null
  bool stdin_terminal = false;  ///< that worker's group becomes the terminal's foreground group
  std::vector<std::vector<std::uint32_t>> cores;  ///< JobPlan::cores
  RoundEnvironment environment;
  std::function<void(LocalRank)> before_each;  ///< just before that one is made
  PmiServer* pmi = nullptr;                    ///< null: no connection for PMI
  Preloader* preloader = nullptr;              ///< null: all start cold
};

struct WorkerStart {
  WorkerStart(Spawner& spawner, Launch launched);

  Launch launch;
  std::vector<WorkerEnvironment> environments;
  /// Of those that are ready to be made, in their order.
  std::vector<SpawnRequest> requests;
  std::vector<UniqueFd> pmi;  ///< of each request, until its worker has it
  std::vector<std::vector<unsigned long>> masks;  ///< of launch.cores, as the kernel wants them
  HeldChildren held;
  std::uint32_t made = 0;
};

/// As Preloader::fork_round takes them.
[[nodiscard]] std::vector<Preloader::Worker> warm_workers(const WorkerStart& start);

/// Bits as sched_setaffinity takes them.
[[nodiscard]] std::vector<unsigned long> affinity_mask(const std::vector<std::uint32_t>& cores);

}  // namespace acc::agent
