#pragma once

#include "runtime/backend.hpp"

#include <memory>
#include <string>
#include <vector>

namespace acc::runtime {

/// Receives from the agent which workers of the job were lost, and reports them to the backends of
/// their groups. One thread per process, from the first group to the end of the process; it blocks
/// in a request to the agent.
///
/// The agent reports a loss before it stops the survivors. Only the agent knows of losses on other
/// hosts, and which signal ended a process.
class PeerFailureListener {
 public:
  struct Watched;
  /// @param backend  outlives the returned object.
  /// @param job_ranks  by rank of the group: its rank in the job.
  [[nodiscard]] static std::shared_ptr<Watched> watch(const std::string& agent_socket, int job_rank,
                                                      Backend& backend, std::vector<int> job_ranks);
};

}  // namespace acc::runtime
