#pragma once

#include "launcher/ctl/job_list.hpp"

#include <optional>
#include <string>
#include <vector>

/// Where services and agents listen, and the jobs that they name.
namespace acc::ctl {

/// The one that was named (--socket, ACC_AGENT_SOCKET), or the places where there may be one.
struct Services {
  std::vector<std::string> sockets;
  bool is_named = false;
};
[[nodiscard]] Services find_services(const std::string& flag);

/// $XDG_RUNTIME_DIR/acc/jobs/*.sock. Sockets of agents that were killed are removed.
[[nodiscard]] std::vector<JobRow> jobs_of_agents(std::int64_t now_ms);

/// `at`: "/v1/nodes/b", of another node alone; empty: of this one.
struct AllJobs {
  std::vector<JobRow> jobs;
  std::vector<std::string> answered;  ///< sockets of services
  std::optional<Error> error;         ///< of the first service that did not answer
};
[[nodiscard]] AllJobs find_jobs(const Services& services, std::int64_t now_ms,
                                const std::string& at = {});

}  // namespace acc::ctl
