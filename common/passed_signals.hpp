#pragma once

#include <algorithm>
#include <array>
#include <csignal>
#include <string>

namespace acc {

/// What acc-launch passes on to all workers, and acc-agent to a job. Another one has its default
/// action on those two, and never arrives.
inline constexpr std::array kPassedSignals{SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2};

[[nodiscard]] constexpr bool is_passed_on(int signo) {
  return std::ranges::find(kPassedSignals, signo) != kPassedSignals.end();
}

/// Without --preempt_signals, too: SIGTERM, SIGINT, SIGHUP, SIGQUIT.
[[nodiscard]] constexpr bool ends_any_job(int signo) {
  return is_passed_on(signo) && signo != SIGUSR1 && signo != SIGUSR2;
}

/// "SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1 or SIGUSR2"
[[nodiscard]] std::string passed_signal_names();

}  // namespace acc
