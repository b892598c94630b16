#pragma once

#include <sys/types.h>

namespace acc::agent {

/// si_value of the SIGINT that the agent gets for a Ctrl-C in a terminal that a worker has.
inline constexpr int kTerminalInterrupt = 0x43;

/// Forks a process that joins the process group `group`, the terminal's foreground group, so that
/// it also gets the SIGINT of a Ctrl-C, and reports it to the agent. It runs until it is killed or
/// its parent exits. Only for a process without threads.
/// @return its pid, or -1
pid_t start_interrupt_watch(pid_t group, pid_t agent);

}  // namespace acc::agent
