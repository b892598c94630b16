#pragma once

#include "runtime/backend.hpp"

#include <memory>
#include <string>
#include <vector>

namespace acc::runtime {

/// Hears from our agent which workers were lost, anywhere in the job, and tells the backends of the
/// groups that they were in. One thread for the process, from the first group on to the end of the
/// process: it sleeps in a question to the agent.
///
/// The agent tells before it asks the survivors to end, and it alone knows of a rank on another
/// host, and with which signal it died.
class LostWatch {
 public:
  struct Watched;
  /// @param backend  outlives what is returned.
  /// @param job_ranks  by rank of the group: its rank in the job.
  [[nodiscard]] static std::shared_ptr<Watched> watch(const std::string& agent_socket, int job_rank,
                                                      Backend& backend, std::vector<int> job_ranks);
};

}  // namespace acc::runtime
