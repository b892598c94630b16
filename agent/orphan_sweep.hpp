#pragma once

#include <sys/types.h>

#include <unordered_set>

/// Kills what a dead agent left behind. For the guardian: these processes are reparented to it, one
/// generation at a time.
namespace acc::agent {

/// Kills and reaps all children of this process, and those that become its children meanwhile.
/// Linear in their number, and may be called again at any time. Gives up when no process has exited
/// for five seconds: the remaining ones can't be killed.
/// @param not_ours   left alone
/// @param signal_fd  a signalfd for SIGCHLD, not blocking; what arrives there is dropped
/// @return how many were killed by SIGKILL
int sweep_orphans(const std::unordered_set<pid_t>& not_ours, int signal_fd);

}  // namespace acc::agent
