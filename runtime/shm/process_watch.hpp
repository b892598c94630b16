#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>

namespace acc::runtime::shm {

/// Reports within a millisecond that a watched process has ended, which shared memory does not
/// show. One thread, shared by all groups of this process.
class ProcessWatch {
 public:
  /// Called once, on the watching thread, with "was killed by SIGKILL (signal 9)", "exited with
  /// status 3" or, if unknown, "ended".
  using Ended = std::function<void(const std::string& how)>;

  /// The instance shared by all groups of this process; a forked one has its own.
  /// @throws Error system
  static std::shared_ptr<ProcessWatch> shared();
  ProcessWatch();
  ~ProcessWatch();
  ProcessWatch(const ProcessWatch&) = delete;
  ProcessWatch& operator=(const ProcessWatch&) = delete;

  /// A process that has already ended is reported immediately. @return for `forget`.
  std::uint64_t watch(pid_t pid, Ended ended);
  /// After it returns the callback neither runs nor will run. Not to be called from a callback.
  void forget(std::uint64_t id) noexcept;

 private:
  class Loop;
  std::shared_ptr<Loop> loop_;  ///< shared with the thread
  std::thread thread_;
};

/// The state letter of /proc/PID/stat ('T' is stopped); 0: unknown.
[[nodiscard]] char process_state(pid_t pid) noexcept;

/// Has the process ended, reaped or not? Needs no descriptor.
[[nodiscard]] bool has_ended(pid_t pid) noexcept;

/// Waits, for half a second at most, until the process of a rank that left its group has ended. A
/// rank that leaves while it is still needed is usually ending because of an exception. Its exit is
/// the cause and must precede ours, which a launcher would otherwise blame.
void await_end_of_leaver(pid_t pid) noexcept;

}  // namespace acc::runtime::shm
