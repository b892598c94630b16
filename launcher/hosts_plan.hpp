#pragma once

#include "agent/fanout/cluster_launch.hpp"
#include "launcher/cli.hpp"
#include "launcher/config.hpp"
#include "launcher/host_daemon.hpp"
#include "launcher/host_facts.hpp"
#include "launcher/host_list.hpp"
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

struct HostsInputs {
  const Environment& environment;  ///< the caller's
  std::string folder;              ///< working directory
  std::string program;             ///< path of this acc-launch
  std::string host_name;           ///< of this machine
  std::string hostfile_text;       ///< of --hostfile
  std::string random;              ///< names the job
  std::string default_config;      ///< the config file, if it was found and not named
  DaemonFound daemon{};            ///< what answers on this machine
  std::string ctl = "acc-ctl";     ///< path of it
};

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
