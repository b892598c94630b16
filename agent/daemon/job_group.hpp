#pragma once

#include "common/unique_fd.hpp"

#include <sys/types.h>

#include <string>

/// The control group of a job, jobs/ID below the daemon's own, where cgroup v2 is there and
/// writable; else all of this does nothing.
namespace acc::agent::daemon {

/// The folder jobs/ of the daemon's group; empty: there are no control groups.
[[nodiscard]] std::string make_jobs_group();

/// Makes it, and hands it over to the user, so that the job's agent may divide it.
/// @return its folder, for CLONE_INTO_CGROUP; none: without
[[nodiscard]] UniqueFd make_job_group(const std::string& jobs_group, const std::string& id,
                                      uid_t uid, gid_t gid);
/// SIGKILL to all that is in it.
void kill_job_group(const std::string& jobs_group, const std::string& id);
/// Of one without groups in it. @return whether it is gone
bool drop_job_group(const std::string& jobs_group, const std::string& id);
/// SIGKILL to what is in it, and with all groups in it; its user makes no more. May take long.
/// @return whether it is gone: what was killed still has to end
bool remove_job_group(const std::string& jobs_group, const std::string& id);

}  // namespace acc::agent::daemon
