#pragma once

#include "agent/daemon/daemon.hpp"

namespace acc::agent::daemon {

/// The job service on the settings' state folder, with the jobs of earlier daemons found again.
/// Runs `io` until that is done.
/// @param io  with a work guard: it runs while the jobs are found, and must not run out of work.
Result<JobsRun> start_job_service(boost::asio::io_context& io, const Settings& settings);

}  // namespace acc::agent::daemon
