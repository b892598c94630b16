#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <optional>

/// Did a worker end by its limit of processor time (`ulimit -t`, RLIMIT_CPU, LimitCPU= of systemd)?
namespace acc::agent {

struct CpuFacts {
  double used_s = 0;  ///< by the process itself, without its children
  std::optional<std::uint64_t> soft_limit_s;  ///< none: unlimited
  std::optional<std::uint64_t> hard_limit_s;
};

/// The limit that explains the signal: at the hard one the kernel sends SIGKILL, at the soft one
/// SIGXCPU. Nothing for another signal, or if less time was used.
[[nodiscard]] std::optional<std::chrono::seconds> reached_cpu_limit(int signo, const CpuFacts& cpu);

/// As above, of a process that ended and wasn't reaped yet: its limits and times are still readable.
[[nodiscard]] std::optional<std::chrono::seconds> reached_cpu_limit(pid_t ended, int signo);

}  // namespace acc::agent
