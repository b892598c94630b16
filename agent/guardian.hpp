#pragma once

#include "agent/guardian_board.hpp"

#include <functional>

/// The process that the user started. Small: it forks the agent, forwards signals to it, holds the
/// lease (lease_watch.hpp), sweeps up what a dead agent left behind and passes on the exit code.
namespace acc::agent {

/// Forks. The child becomes the agent process (own group, sub-reaper) and runs `agent_main`; the
/// calling process guards it and returns its exit code. Call first thing in main, before threads
/// and before memory is touched.
int run_guarded(const std::function<int(const GuardianLink&)>& agent_main);

}  // namespace acc::agent
