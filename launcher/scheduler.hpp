#pragma once

#include "launcher/config.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

/// What the variables of a scheduler say about this process's place in a job of several (pure).
/// Only unmistakable ones count: MASTER_ADDR, RANK and WORLD_SIZE alone mean nothing.
namespace acc::launcher {

/// A variable that says what one of our settings says.
struct Finding {
  std::string_view key;
  std::string_view variable;
  std::string value;
  friend bool operator==(const Finding&, const Finding&) = default;
};

/// Each task of the scheduler that runs acc-launch is one machine of the job, also where several of
/// them share a host: each may use only what the scheduler has bound to it.
struct Placement {
  std::string who;             ///< "Slurm step 42.0"
  std::string job{};           ///< name of the job, the same for all tasks; empty: not told
  std::uint32_t machines = 0;  ///< 0: not told, the user says how many
  std::optional<std::uint32_t> rank{};
  std::string host{};               ///< where the coordinator listens; empty: not told
  std::uint16_t port = 0;           ///< free for this job as far as one can tell from its name
  bool is_host = false;             ///< this task is there
  std::uint32_t tasks_here = 1;     ///< on this host
  std::uint32_t task_here = 0;      ///< number of this one among them
  bool own_gpus = false;            ///< the scheduler shows each task its own devices only
  std::vector<Finding> settings{};  ///< PyTorchJob says all by torchrun's names
  friend bool operator==(const Placement&, const Placement&) = default;
};

/// @param host_name  of this machine, with its domain if it has one; only Kubernetes needs it
/// @return nothing without a scheduler, with one task only, and inside of a worker of ours: what a
/// worker starts is a job of its own.
[[nodiscard]] std::optional<Placement> find_placement(const Environment& environment,
                                                      std::string_view host_name);

/// An allocation whose nodes nothing has reached: this process is in its batch script or in its
/// interactive shell, and not in a step that runs on the nodes.
struct UnreachedNodes {
  std::string who;  ///< "Slurm job 42"
  std::uint32_t nodes = 0;
  friend bool operator==(const UnreachedNodes&, const UnreachedNodes&) = default;
};

/// Only of two nodes and more, and not inside of a worker of ours.
[[nodiscard]] std::optional<UnreachedNodes> find_unreached_nodes(const Environment& environment);

}  // namespace acc::launcher
