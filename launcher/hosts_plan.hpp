#pragma once

#include "agent/fanout/cluster_launch.hpp"
#include "launcher/cli.hpp"
#include "launcher/config.hpp"
#include "launcher/host_facts.hpp"
#include "launcher/host_list.hpp"
#include "launcher/hosts_inputs.hpp"
#include "launcher/job_spec.hpp"

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

/// The plan of a job that one command runs on several hosts: who has how many workers, and the
/// command of each.
namespace acc::launcher {

[[nodiscard]] bool is_on_hosts(const CommandLine& line);

/// Flags that only mean something with hosts, given without.
[[nodiscard]] Complaints check_without_hosts(const CommandLine& line);

struct PlannedHosts {
  agent::ClusterLaunch launch;
  std::vector<std::optional<std::uint32_t>> workers;  ///< nothing: as --nproc_per_node says
  Complaints complaints;                              ///< when not empty, the rest must not be used
};

/// Pure.
PlannedHosts plan_hosts(const CommandLine& line, const JobSpec& spec, const HostsInputs& inputs);

/// Facts of a machine that isn't looked at, as the job runs elsewhere: nothing is refused for them.
[[nodiscard]] std::unique_ptr<HostFacts> unknown_facts();

}  // namespace acc::launcher
