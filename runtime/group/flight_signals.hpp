#pragma once

#include <cstdint>

namespace acc::runtime::flight_signals {

/// What came since the last look.
struct Asked {
  int signo = 0;        ///< 0: nothing came
  bool to_end = false;  ///< SIGTERM, which ends this process once the records are written
};

/// From now on SIGUSR2 and SIGTERM make `event` (an eventfd of this process) readable; -1: there is
/// nobody to write records. Handlers that the program installed before are called as well. With
/// SIGTERM the process ends as it would have without us, after end_as_asked().
///
/// The handlers stay for good: a signal that did no harm isn't expected to become deadly again.
void install(int event);
void detach() noexcept;

[[nodiscard]] Asked take() noexcept;

/// SIGTERM as the kernel handles it.
void end_as_asked() noexcept;

}  // namespace acc::runtime::flight_signals
