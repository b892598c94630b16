#pragma once

#include "agent/daemon/guardian_process.hpp"
#include "agent/daemon/job_folder.hpp"
#include "agent/daemon/kept_job.hpp"
#include "agent/daemon/service_settings.hpp"
#include "agent/daemon/trial_turns.hpp"
#include "common/error.hpp"

#include <boost/asio/awaitable.hpp>
#include <boost/asio/thread_pool.hpp>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace acc::agent::daemon {

/// How the guardian of a job is started.
/// @param gpus  that it may see; nothing: all
[[nodiscard]] Result<GuardianRequest> request_for(const ServiceSettings& settings,
                                                  const StateFolder& folder, const Job& job,
                                                  const std::optional<GpuNumbers>& gpus);

/// Programs that run to their end as a job's user, before there is a job. What they start ends with
/// them: a submission's variables (LD_PRELOAD) can make any program of them.
class LauncherTrials {
 public:
  /// @param settings  outlive this, as `pool` does
  LauncherTrials(const ServiceSettings& settings, boost::asio::thread_pool& pool)
      : settings_{settings}, pool_{pool} {}

  /// Before the first trial. @param jobs_group  the control group above those of the jobs; may be
  /// empty
  void use_group(std::string jobs_group) { jobs_group_ = std::move(jobs_group); }

  /// Runs acc-launch as that user, and returns all that it wrote and its exit code.
  /// @return an error where that isn't known: bad_usage: it can't be executed so; timed_out,
  ///   unavailable: it took too long, was killed; malformed: it wrote too much
  struct Trial {
    int exit_code = 0;
    std::string output;
  };
  boost::asio::awaitable<Result<Trial>> try_launcher(LoginUser user,
                                                     std::vector<std::string> words);
  /// The same where and how a job of this submission would run: in its folder, with its variables
  /// and, of a launch, its secret. A few of a user at once: others wait, and end with their caller.
  /// @return as TrialTurns::wait, where it didn't get its turn
  boost::asio::awaitable<Result<Trial>> try_launcher(LoginUser user, Submission submission,
                                                     std::vector<std::string> words,
                                                     std::shared_ptr<CallerLink> caller);

 private:
  boost::asio::awaitable<Result<Trial>> run(LoginUser user, Submission submission,
                                            std::vector<std::string> words,
                                            std::shared_ptr<CallerLink> caller,
                                            TrialTurns::Turn turn);

  const ServiceSettings& settings_;
  boost::asio::thread_pool& pool_;
  std::string jobs_group_;
  TrialTurns turns_;
};

}  // namespace acc::agent::daemon
