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

/// What the launcher said to this process. With no launcher: alone.
struct Contract {
  int rank = 0;
  int size = 1;
  std::optional<int> local_rank;  ///< on this node, as the launcher counts
  std::optional<int> local_size;
  std::string launcher;  ///< "acc-launch", "torchrun", "Open MPI", "MPICH", "Slurm", "RANK and
                         ///< WORLD_SIZE"; empty: none
  std::string master_address;     ///< where rank 0 can be reached; empty: nobody said
  std::uint16_t master_port = 0;  ///< 0: nobody said
  bool one_node = false;          ///< the launcher said that it has one node
  std::string job;                ///< tells this job, and where possible this attempt, from others
  std::string agent_socket;       ///< of our agent; empty: none
  std::optional<std::uint64_t> round;  ///< ACC_ROUND

  /// All ranks are on this node, as far as the launcher said.
  [[nodiscard]] bool all_local() const { return size == 1 || local_size == size; }
};

/// Innermost launcher first: RANK and WORLD_SIZE (acc-launch, torchrun and their like), Open MPI,
/// MPICH and other speakers of PMI, Slurm with more than one task.
/// @throws Error invalid_argument naming variables and values: half a contract, or a contradiction.
[[nodiscard]] Contract read_contract(const Lookup& lookup);

/// What `options` leaves open, as ACC_INIT_TIMEOUT, ACC_COLLECTIVE_TIMEOUT, ACC_CHECK and
/// ACC_BACKEND have it, else as acc-launch --debug and --cpu (ACCELERATE_DEBUG_MODE,
/// ACCELERATE_USE_CPU), else by default. `timeout` stays open without its variable: the default is
/// the backend's.
/// @throws Error invalid_argument naming the variable and its value.
[[nodiscard]] GroupOptions with_environment(GroupOptions options, const Lookup& lookup);

}  // namespace acc::runtime
