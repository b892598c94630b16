#pragma once

#include "agent/guardian_board.hpp"
#include "common/unique_fd.hpp"

#include <sys/types.h>

#include <vector>

/// Lets the kernel end the workers when the lease is over, also where guardian, agent and workers
/// are all frozen (SIGSTOP, a frozen control group) and could only race each other once they wake.
///
/// A small process, the lease timer, has a kernel timer that kills it at the end of the lease: that
/// works on a stopped process, too. It holds the only write end of a pipe. Each worker's process
/// group owns a read end with O_ASYNC and SIGKILL as its signal, so when the last write end closes
/// the kernel kills the groups, stopped or not. No process of ours has to run for that.
namespace acc::agent {

/// The guardian's half: starts the lease timer when there is a lease and none lives.
class LeaseTimer {
 public:
  /// `pipe_fd`: the read end, -1: none. Both outlive the timer.
  LeaseTimer(GuardianBoard* board, int pipe_fd) : board_{board}, pipe_fd_{pipe_fd} {}

  /// To be called at each wake-up.
  void ensure();
  /// True if it was ours: the workers are being killed by the kernel.
  bool reaped(pid_t pid, int status);
  /// The job is over. It is reaped when this returns.
  void end();

 private:
  void start();

  GuardianBoard* board_;
  int pipe_fd_;
  pid_t pid_ = 0;
};

/// The agent's half: what is to die with the lease timer.
class LeaseBoundGroups {
 public:
  explicit LeaseBoundGroups(const GuardianLink& guardian) : guardian_{guardian} {}

  /// The process group of a worker. Nothing happens in a job without leases.
  void add(pid_t group);
  /// They are gone.
  void clear() { ends_.clear(); }

 private:
  GuardianLink guardian_;
  std::vector<UniqueFd> ends_;
};

}  // namespace acc::agent
