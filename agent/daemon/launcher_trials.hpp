#pragma once

#include "agent/daemon/guardian_process.hpp"
#include "agent/daemon/job_folder.hpp"
#include "agent/daemon/kept_job.hpp"
#include "agent/daemon/service_settings.hpp"
#include "common/error.hpp"

#include <boost/asio/awaitable.hpp>

#include <string>
#include <vector>

namespace acc::agent::daemon {

/// How the guardian of a job is started.
[[nodiscard]] Result<GuardianRequest> request_for(const ServiceSettings& settings,
                                                  const StateFolder& folder, const Job& job);

/// Programs that run to their end as a job's user, before there is a job.
class LauncherTrials {
 public:
  /// @param settings  outlive this
  explicit LauncherTrials(const ServiceSettings& settings) : settings_{settings} {}

  /// Runs acc-launch as that user, and returns what it wrote and its exit code.
  struct Trial {
    int exit_code = 0;
    std::string output;
  };
  boost::asio::awaitable<Result<Trial>> try_launcher(LoginUser user,
                                                     std::vector<std::string> words) const;
  /// The same where and how a job of this submission would run: in its folder, with its variables
  /// and, of a launch, its secret.
  boost::asio::awaitable<Result<Trial>> try_launcher(LoginUser user, Submission submission,
                                                     std::vector<std::string> words) const;

 private:
  const ServiceSettings& settings_;
};

}  // namespace acc::agent::daemon
