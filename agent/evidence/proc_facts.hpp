#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

/// What /proc tells about a process. For the collecting process alone: a read there may take for
/// ever where a driver hangs.
namespace acc::agent::evidence {

struct ProcFacts {
  char state = '?';
  pid_t parent = 0;
  std::string command;       ///< its short name
  std::string wait_channel;  ///< "hrtimer_nanosleep"; empty: it runs, or the kernel doesn't tell
  std::string system_call;   ///< "230"; empty: none, or the kernel doesn't tell
  std::uint64_t caught_signals = 0;  ///< bit N-1: it has a handler for signal N
  [[nodiscard]] bool catches(std::uint32_t signo) const {
    return signo > 0 && signo <= 64 && (caught_signals >> (signo - 1) & 1U) != 0;
  }
};

[[nodiscard]] ProcFacts read_proc(pid_t pid);
/// Whether `process` is `ancestor` or a descendant of it.
[[nodiscard]] bool is_of(pid_t process, pid_t ancestor);
/// "its child: pid 71 (sleep), state S, in hrtimer_nanosleep" for each living descendant, the
/// nearest first; of many not all.
[[nodiscard]] std::vector<std::string> descendant_words(pid_t pid);
/// The process that works where the worker is a shell around it.
[[nodiscard]] pid_t behind_shells(pid_t worker);
/// A variable of its environment at its start; empty: none.
[[nodiscard]] std::string variable_of(pid_t pid, std::string_view name);
[[nodiscard]] bool is_python(pid_t pid);
/// Whether it has loaded the library of NVIDIA's or AMD's driver: it may wait for a GPU.
[[nodiscard]] bool has_gpu_driver(pid_t pid);

}  // namespace acc::agent::evidence
