#pragma once

#include "agent/daemon/jobs.hpp"
#include "agent/daemon/settings.hpp"
#include "common/error.hpp"

#include <boost/asio/awaitable.hpp>
#include <boost/asio/io_context.hpp>

#include <sys/types.h>

#include <functional>
#include <memory>
#include <string>

namespace acc::agent::daemon {

/// The jobs of a state folder, as the daemon runs them.
struct JobsRun {
  std::unique_ptr<Jobs> jobs;
  /// With new settings, and the folder of jobs that start with the daemon read again.
  std::function<boost::asio::awaitable<Result<void>>(Settings)> reload;
  /// Takes no more jobs; those that run stay.
  std::function<void()> close;
};
/// Makes the state folder where it is missing, locks it, and finds its jobs again; reload() then
/// reads the job files for the first time. `unavailable`: another daemon has the folder.
using StartJobs = std::function<Result<JobsRun>(boost::asio::io_context&, const Settings&)>;
/// The settings anew, at SIGHUP.
using LoadSettings = std::function<Result<Settings>()>;

/// Serves the API of one state folder until SIGTERM or SIGINT; jobs live on. The exit code, after a
/// message for what failed.
int run_daemon(const LoadSettings& load, const StartJobs& start_jobs);

}  // namespace acc::agent::daemon
