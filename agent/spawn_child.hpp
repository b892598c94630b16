#pragma once

#include <sys/resource.h>
#include <sys/types.h>

#include <atomic>
#include <cstddef>
#include <cstdint>

/// The part of a start that runs in the child, between clone and exec. It shares the agent's memory
/// while the agent goes on: system calls only, without errno and libc, on a stack of its own.
namespace acc::agent {

/// What a child may be given beside its three standard descriptors.
inline constexpr int kExtraFd = 3;

/// Opened once: a child goes on to exec when its gate is open.
struct Gate {
  int is_open = 0;  ///< a futex
};

/// ChildSlot::state. The kernel itself writes `gone` when the child has left our memory, by exec or
/// by its end (CLONE_CHILD_CLEARTID).
enum ChildStep : int { gone = 0, in_making = 1, held = 2 };

/// What the child reads, and where it answers; above the top of its stack.
struct ChildSlot {
  const char* path;
  char* const* argv;
  char* const* envp;
  int stdin_fd;  ///< -1: inherit
  int stdout_fd;
  int stderr_fd;
  int extra_fd;     ///< >= 0: becomes kExtraFd
  int terminal_fd;  ///< >= 0: make the child's group its foreground group
  /// >= 0: the table of descriptors is shared with the agent; take those below this one.
  int first_foreign_fd;
  const int* reset_signals;    ///< set back to the default, up to a 0
  const int* ignored_signals;  ///< and then ignored, up to a 0; null: none
  const rlimit* nofile;        ///< null: as ours
  const unsigned long* cpus;   ///< null: not bound
  std::size_t cpus_bytes;
  const std::atomic<std::int64_t>* lease_ends_ns;  ///< null: no lease
  pid_t agent;
  Gate* gate;

  int state;         ///< a futex, shared as the kernel wakes it so: ChildStep
  int errnum;        ///< of the step that failed; 0: none did
  const char* step;  ///< a literal
};

/// Entry of the child. Ends in exec or _exit.
int child_main(void* slot);

/// Waits while `state` is `step`, at most so long (< 0: without end).
void await_change(int* state, ChildStep step, std::int64_t nanoseconds);
/// Wakes children that wait at the gate, at most so many. @return how many there were
int wake_at(Gate& gate, int count);

}  // namespace acc::agent
