#pragma once

#include <sys/types.h>

#include <unordered_set>

/// What the guardian does about the processes of an agent that died: they become its children, one
/// generation at a time.
namespace acc::agent {

/// Kills and reaps all children of this process, and those that become its children meanwhile.
/// Linear in their number, and may be called again at any time. Gives up when nothing has moved for
/// five seconds: what is left then is beyond SIGKILL's reach.
/// @param not_ours   left alone
/// @param signal_fd  a signalfd for SIGCHLD, not blocking; what arrives there is dropped
/// @return how many died of SIGKILL
int sweep_orphans(const std::unordered_set<pid_t>& not_ours, int signal_fd);

}  // namespace acc::agent
