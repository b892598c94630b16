#pragma once

#include "common/duration.hpp"

#include <chrono>
#include <optional>

/// Leases are measured by CLOCK_BOOTTIME, which goes on while the machine is suspended;
/// steady_clock (CLOCK_MONOTONIC) stands still then. In a virtual machine that was paused all
/// clocks may stand still, and then only the wall clock, once it has been set right, shows it.
namespace acc {

/// Now by CLOCK_BOOTTIME. Never compare it with steady_clock's: they differ by all times of
/// suspension.
[[nodiscard]] Instant boot_now();

/// The clocks of this machine, read at one moment.
struct Clocks {
  Instant boot;                            ///< CLOCK_BOOTTIME
  std::chrono::nanoseconds monotonic{0};   ///< CLOCK_MONOTONIC
  std::chrono::nanoseconds realtime{0};    ///< CLOCK_REALTIME: steps when it is set
  /// By how much the fastest of the others is ahead of `boot`. A step of it upwards: `boot` stood
  /// still, or the wall clock was set forward. Which of the two, no clock of this machine can tell.
  [[nodiscard]] std::chrono::nanoseconds ahead() const;
};
[[nodiscard]] Clocks read_clocks();

/// A step that is shorter says nothing: NTP slews, and a lease leaves room for more.
inline constexpr Millis kClockStep{500};

/// Notices that `boot` may have stood still (pure).
class ClockWatch {
 public:
  explicit ClockWatch(const Clocks& clocks) : ahead_{clocks.ahead()} {}
  /// @return for how long it may have stood still since the last look; nothing: it did not.
  std::optional<Millis> look(const Clocks& clocks);

 private:
  std::chrono::nanoseconds ahead_;
};

}  // namespace acc
