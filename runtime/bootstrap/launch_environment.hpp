#pragma once

#include <acc/process_group.hpp>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace acc::runtime {

/// The value of a variable; nothing: it isn't set.
using Lookup = std::function<std::optional<std::string>(std::string_view name)>;

/// The variables of this process.
[[nodiscard]] Lookup environment();

/// What the launcher tells this process in its environment. Without a launcher: one rank of one.
struct LaunchEnvironment {
  int rank = 0;
  int size = 1;
  std::optional<int> local_rank;  ///< on this node, as the launcher counts
  std::optional<int> local_size;
  std::string launcher;  ///< "acc-launch", "torchrun", "Open MPI", "MPICH", "Slurm", "RANK and
                         ///< WORLD_SIZE"; empty: none
  std::string master_address;          ///< where rank 0 can be reached; empty: not given
  std::uint16_t master_port = 0;       ///< 0: not given
  bool one_node = false;               ///< the launcher says that the job has one node
  bool in_pod = false;                 ///< of Kubernetes
  std::string job;                     ///< identifies this job, and where possible this attempt
  std::string agent_socket;            ///< of our agent; empty: none
  std::optional<std::uint64_t> round;  ///< ACC_ROUND
  std::string note;                    ///< for the user: why this process is alone; mostly empty

  /// True if the launcher says that all ranks are on this node.
  [[nodiscard]] bool all_local() const { return size == 1 || local_size == size; }
};

/// Innermost launcher first: RANK and WORLD_SIZE (acc-launch, torchrun and their like), Open MPI,
/// MPICH and other PMI implementations, a step of Slurm (srun) with more than one task.
/// @throws Error invalid_argument naming variables and values: an incomplete or contradictory
///   environment.
[[nodiscard]] LaunchEnvironment read_launch_environment(const Lookup& lookup);

/// Completes unset `options` from ACC_INIT_TIMEOUT, ACC_COLLECTIVE_TIMEOUT, ACC_CHECK and
/// ACC_BACKEND, then from acc-launch's --debug and --cpu (ACCELERATE_DEBUG_MODE,
/// ACCELERATE_USE_CPU), then with defaults. `timeout` stays unset without its variable: each
/// backend has its own default.
/// @throws Error invalid_argument naming the variable and its value; a negative time-out.
[[nodiscard]] GroupOptions with_environment(GroupOptions options, const Lookup& lookup);

}  // namespace acc::runtime
