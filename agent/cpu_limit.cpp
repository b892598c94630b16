#include "agent/cpu_limit.hpp"

#include "agent/control_protocol.hpp"
#include "agent/small_file.hpp"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <string>

namespace acc::agent {

std::optional<std::chrono::seconds> reached_cpu_limit(int signo, const CpuFacts& cpu) {
  auto limit = signo == SIGKILL ? cpu.hard_limit_s : cpu.soft_limit_s;
  if ((signo != SIGKILL && signo != SIGXCPU) || !limit) return std::nullopt;
  // With SIGXCPU the kernel raises the soft limit by a second.
  if (signo == SIGXCPU && *limit > 1) --*limit;
  // The kernel compares clock ticks, and shows the precise time: on a busy machine 1.83 s of 2, and
  // once less than 3.55 of 4.
  constexpr double kTickError = 0.1;
  constexpr double kTickErrorOfShort = 0.25;
  constexpr double kLongest_s = 1;
  constexpr double kShortest_s = 0.05;
  const auto limit_s = static_cast<double>(*limit);
  const auto error_s =
      std::max(limit_s * kTickError, std::min(limit_s * kTickErrorOfShort, kLongest_s));
  const auto least_s = limit_s - error_s - kShortest_s;
  if (cpu.used_s < least_s) return std::nullopt;
  return std::chrono::seconds{*limit};
}

static std::optional<std::uint64_t> unless_infinite(rlim_t limit) {
  return limit == RLIM_INFINITY ? std::nullopt : std::optional<std::uint64_t>{limit};
}

std::optional<std::chrono::seconds> reached_cpu_limit(pid_t ended, int signo) {
  if (signo != SIGKILL && signo != SIGXCPU) return std::nullopt;
  rlimit limit{};
  if (::prlimit(ended, RLIMIT_CPU, nullptr, &limit) != 0) return std::nullopt;
  CpuFacts cpu{0, unless_infinite(limit.rlim_cur), unless_infinite(limit.rlim_max)};
  if (!cpu.soft_limit_s && !cpu.hard_limit_s) return std::nullopt;
  const auto used =
      control::usage_from_stat(read_small_file("/proc/" + std::to_string(ended) + "/stat"), 1,
                               static_cast<std::uint64_t>(::sysconf(_SC_CLK_TCK)));
  if (!used) return std::nullopt;
  cpu.used_s = used->cpu_s;
  return reached_cpu_limit(signo, cpu);
}

}  // namespace acc::agent
