#pragma once

#include "agent/fanout/cluster_launch.hpp"
#include "launcher/cli.hpp"
#include "launcher/hosts_inputs.hpp"
#include "launcher/job_spec.hpp"

#include <cstdint>
#include <optional>
#include <vector>

/// The plan of a job that one command runs on several hosts: who has how many workers, and the
/// command of each.
namespace acc::launcher {

struct PlannedHosts {
  agent::ClusterLaunch launch;
  std::vector<std::optional<std::uint32_t>> workers;  ///< nothing: as --nproc_per_node says
  Complaints complaints;                              ///< when not empty, the rest must not be used
};

/// Pure.
PlannedHosts plan_hosts(const CommandLine& line, const JobSpec& spec, const HostsInputs& inputs);

}  // namespace acc::launcher
