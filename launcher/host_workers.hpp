#pragma once

#include "common/error.hpp"
#include "launcher/cli.hpp"
#include "launcher/host_list.hpp"
#include "launcher/job_spec.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

/// How many workers each host of a job has, and how many hosts the job needs; pure.
namespace acc::launcher {

struct HostWorkers {
  std::vector<std::optional<std::uint32_t>> each;  ///< nothing: as --nproc_per_node says
  std::size_t min_hosts = 0;                       ///< fewer can't run the job
  std::string nodes;      ///< --nnodes for each host: "3", or a range, "2:4"
  Complaints complaints;  ///< when not empty, the rest must not be used
};

/// By the slots of the hosts, --nproc_per_node, or --num_processes, which counts them over all.
/// @param hosts  at least one
[[nodiscard]] HostWorkers share_workers(const CommandLine& line, const JobSpec& spec,
                                        const std::vector<Host>& hosts);

}  // namespace acc::launcher
