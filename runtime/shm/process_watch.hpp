#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

namespace acc::runtime::shm {

/// One thread that sees within a millisecond when one of the watched processes ends; shared by all
/// groups of this process. Shared memory has no end-of-file that would tell.
class ProcessWatch {
 public:
  /// Called once, on the watching thread, with "was killed by SIGKILL (signal 9)", "exited with
  /// status 3" or, where that can't be known, "ended".
  using Ended = std::function<void(const std::string& how)>;

  /// The one that others use too, or a new one. @throws Error system
  static std::shared_ptr<ProcessWatch> shared();
  ProcessWatch();
  ~ProcessWatch();
  ProcessWatch(const ProcessWatch&) = delete;
  ProcessWatch& operator=(const ProcessWatch&) = delete;

  /// One that has already ended is told at once. @return for `forget`.
  std::uint64_t watch(pid_t pid, Ended ended);
  /// When it returns the callback is not running and never will be; not to be called from one.
  void forget(std::uint64_t id) noexcept;

 private:
  class Loop;
  std::unique_ptr<Loop> loop_;
};

/// The state letter of /proc/PID/stat ('T' is stopped); 0: it can't be known.
[[nodiscard]] char process_state(pid_t pid) noexcept;

/// Also of one that its parent hasn't reaped. Needs no descriptor.
[[nodiscard]] bool has_ended(pid_t pid) noexcept;

/// Waits until a rank that left its group has ended, too, for half a second at most. Who leaves
/// while it is still called for is mostly on its way out by an exception of its own. Its exit is
/// the cause, and is to come before ours, which a launcher would take for it.
void await_end_of_leaver(pid_t pid) noexcept;

}  // namespace acc::runtime::shm
