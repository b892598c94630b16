#pragma once

#include <sys/types.h>

#include <cstdint>
#include <vector>

namespace acc::agent::evidence {

/// In /proc/PID/stat: by a signal (T), or by a debugger (t).
[[nodiscard]] bool is_stop(char state);

/// Processes that a debugger stops, and that go on in any case.
///
/// A debugger that is killed right after its attach leaves the SIGSTOP of the attach pending: the
/// process then stays stopped for ever. Those that were stopped before are left so.
class HeldProcesses {
 public:
  /// Before any debugger: as it is now. One that is known is kept as it was.
  void note(pid_t pid);
  /// … and those that it started.
  void note_with_children(pid_t pid);
  /// Lets those go on that are stopped and weren't. @return whether all run; a debugger may still
  /// hold one of them, so that it has to be looked at again
  [[nodiscard]] bool let_go();
  void clear() { all_.clear(); }

 private:
  struct Held {
    pid_t pid = 0;
    std::uint64_t start_time = 0;  ///< with the pid its identity
    bool was_stopped = false;
  };
  void note(pid_t pid, int depth);

  std::vector<Held> all_;
};

}  // namespace acc::agent::evidence
