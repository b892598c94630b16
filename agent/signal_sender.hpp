#pragma once

#include <sys/signalfd.h>

#include <string_view>

namespace acc::agent {

/// Programs that send a signal to each process of a job, its workers too: Slurm's steps, systemd
/// (KillMode=control-group), and the daemons of PBS, Grid Engine, LSF and HTCondor.
[[nodiscard]] bool signals_whole_jobs(std::string_view program);

/// Whether the sender is one of them. What the agent, which has a process group of its own, gets
/// from it directly its workers got as well: a second one would come into the handler of the first.
[[nodiscard]] bool is_of_job_manager(const signalfd_siginfo& signal);

}  // namespace acc::agent
