#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace acc::agent {

/// What /proc/PID/stat says of a process. It allocates for the file's text and the name alone: a
/// sweep reads thousands.
struct ProcessStat {
  std::string name;
  char state = 'X';  ///< as in the file: R, S, D, T (stopped), t (by a debugger), Z; X: it is gone
  pid_t parent = 0;
  std::uint64_t start_time = 0;  ///< in clock ticks since the boot; with the pid its identity
};

/// state X: there is no such process, or it can't be read.
[[nodiscard]] ProcessStat read_process_stat(pid_t pid);
/// Of the file's text. The name may hold blanks and brackets.
[[nodiscard]] ProcessStat parse_process_stat(std::string_view text);
/// The process that traces it, a debugger; 0: none does, or it can't be known.
[[nodiscard]] pid_t tracer_of(pid_t pid);
/// Whether the process ignores it, as it inherited or asked for; false where that can't be known.
[[nodiscard]] bool ignores_signal(pid_t pid, int signo);
/// What a process does with signals: one bit each (signal_bit).
struct SignalSets {
  std::uint64_t blocked = 0;
  std::uint64_t ignored = 0;
  std::uint64_t caught = 0;
};
[[nodiscard]] constexpr std::uint64_t signal_bit(int signo) {
  return std::uint64_t{1} << static_cast<unsigned>(signo - 1);
}
/// All empty where that can't be known.
[[nodiscard]] SignalSets read_signal_sets(pid_t pid);
/// Whether one that was sent to the process still has to be taken; false where that can't be known.
[[nodiscard]] bool has_pending_signal(pid_t pid, int signo);
/// The processes that its main thread started, where other threads don't count: one small file.
[[nodiscard]] std::vector<pid_t> children_of_main_thread(pid_t pid);

}  // namespace acc::agent
