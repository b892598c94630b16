#pragma once

#include <sys/types.h>

#include <atomic>
#include <functional>

/// The process that the user started. Small: it forks the agent, forwards signals to it, sweeps up
/// what a dead agent left behind and passes on the exit code.
namespace acc::agent {

/// A page that both processes see: what the guardian must know when the agent can't tell it any
/// more.
struct GuardianBoard {
  char temporary_folder[512];   ///< to be removed if the agent dies before it does; empty: none
  std::atomic<bool> finishing;  ///< the workers are gone, the last output is being written
};

struct GuardianLink {
  pid_t pid = 0;  ///< of the guardian; the agent ends its workers when that process is gone
  GuardianBoard* board = nullptr;  ///< shared memory; null in tests without a guardian
};

/// Forks. The child becomes the agent process (own group, sub-reaper) and runs `agent_main`; the
/// calling process guards it and returns its exit code. Call first thing in main, before threads
/// and before memory is touched.
int run_guarded(const std::function<int(const GuardianLink&)>& agent_main);

}  // namespace acc::agent
