#pragma once

#include "runtime/wake_event.hpp"

namespace acc::runtime::flight_signals {

/// Signals received since the last call.
struct Asked {
  int signo = 0;        ///< 0: none
  bool to_end = false;  ///< SIGTERM, which ends this process once the records are written
};

/// From now on SIGUSR2 and SIGTERM set `event`, which stays valid for good. Handlers installed
/// earlier by the program are called as well. After SIGTERM the process ends as it would have
/// otherwise, by end_as_asked().
///
/// The handlers stay installed: a signal that was harmless must not become deadly again.
void install(const WakeEvent& event);
void detach() noexcept;

[[nodiscard]] Asked take() noexcept;

/// Ends the process by SIGTERM, as the kernel would.
void end_as_asked() noexcept;

}  // namespace acc::runtime::flight_signals
