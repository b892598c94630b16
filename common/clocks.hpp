#pragma once

#include "common/duration.hpp"

#include <chrono>
#include <optional>

/// Leases are measured by CLOCK_BOOTTIME, which continues while the machine is suspended;
/// steady_clock (CLOCK_MONOTONIC) stops then. In a virtual machine that was paused all clocks may
/// stop; then only the wall clock shows it, once it has been corrected.
namespace acc {

/// The current CLOCK_BOOTTIME. Never compare it with steady_clock: they differ by the total time of
/// suspension.
[[nodiscard]] Instant boot_now();

/// The clocks of this machine, read at one moment.
struct Clocks {
  Instant boot;                           ///< CLOCK_BOOTTIME
  std::chrono::nanoseconds monotonic{0};  ///< CLOCK_MONOTONIC
  std::chrono::nanoseconds realtime{0};   ///< CLOCK_REALTIME: steps when it is set
  /// How far the fastest of the other clocks is ahead of `boot`. An upward step means that `boot`
  /// stopped, or that the wall clock was set forward; no clock of this machine can tell which.
  [[nodiscard]] std::chrono::nanoseconds ahead() const;
};
[[nodiscard]] Clocks read_clocks();

/// A shorter step means nothing: NTP slews, and a lease leaves room for more.
inline constexpr Millis kClockStep{500};

/// Detects that `boot` may have stopped (pure).
class ClockWatch {
 public:
  explicit ClockWatch(const Clocks& clocks) : ahead_{clocks.ahead()} {}
  /// @return how long it may have stopped since the last look; nothing: it did not
  std::optional<Millis> look(const Clocks& clocks);

 private:
  std::chrono::nanoseconds ahead_;
};

}  // namespace acc
