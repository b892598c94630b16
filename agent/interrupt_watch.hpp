#pragma once

#include "agent/guardian_board.hpp"

#include <sys/types.h>

#include <csignal>

namespace acc::agent {

/// What the agent gets for a Ctrl-C in a terminal that a worker has. Not SIGINT: of numbers below
/// SIGRTMIN one can be pending at a time, so a `kill -INT` just behind the key would be lost.
inline int terminal_interrupt_signal() { return SIGRTMIN; }

/// Forks a process that joins the process group `group`, the terminal's foreground group, so that
/// it also gets the SIGINT of a Ctrl-C, and reports it to the agent and on the board. It runs until
/// end_interrupt_watch, or until its parent exits. Only for a process without threads.
/// @return its pid, or -1
pid_t start_interrupt_watch(pid_t group, pid_t agent, GuardianBoard& board);

/// Ends it as soon as it has reported what was pressed before, and reaps it: what ends by Ctrl-C
/// may do so before the watch has run.
void end_interrupt_watch(pid_t watch);

}  // namespace acc::agent
