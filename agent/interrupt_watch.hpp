#pragma once

#include <sys/types.h>

namespace acc::agent {

/// si_value of the SIGINT that the agent gets for a Ctrl-C in a terminal that a worker has.
inline constexpr int kTerminalInterrupt = 0x43;

/// Forks a process that joins the process group `group`, which has the terminal, so that it gets
/// the SIGINT of a Ctrl-C, too, and tells the agent of it. It lives until it is killed or its
/// parent dies. Only for a process without threads.
/// @return its pid, or -1
pid_t start_interrupt_watch(pid_t group, pid_t agent);

}  // namespace acc::agent
