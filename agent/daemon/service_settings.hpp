#pragma once

#include "agent/daemon/jobs.hpp"
#include "agent/daemon/prune_rules.hpp"
#include "rendezvous/private_file.hpp"

#include <sys/resource.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace acc::agent::daemon {

struct ServiceSettings {
  std::string state_folder;
  std::string launcher;     ///< path of acc-launch; empty: beside our own program
  std::string job_files;    ///< /etc/acc/jobs.d; empty: none
  std::uint32_t slots = 0;  ///< 0: the cores
  std::optional<std::vector<std::uint32_t>> gpus;  ///< none: those of /dev/nvidia*
  PruneRules prune;
  std::size_t max_jobs = 10'000;                           ///< in the folder, ended ones too
  std::size_t max_bytes_of_user = std::size_t{64} << 20U;  ///< of all its jobs' words and variables
  std::size_t max_bytes_of_all = std::size_t{256} << 20U;  ///< the same of all users but root
  std::size_t max_jobs_of_user = 2'000;  ///< that haven't ended; root has no such limit
  std::optional<rlimit> nofile;          ///< of jobs, where the daemon raised its own
  std::string lang = "C.UTF-8";
  /// The secret of a user's launch, from the cluster's; notes the key that it used. not_found: this
  /// node has none. Empty: no launch is taken.
  std::function<Result<rendezvous::SecretBytes>(const std::string& user, Launch&)> launch_secret{};
};

/// What isn't set, from this node: cores, devices, the acc-launch beside our own program.
[[nodiscard]] ServiceSettings with_node_facts(ServiceSettings settings);

}  // namespace acc::agent::daemon
