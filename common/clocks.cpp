#include "common/clocks.hpp"

#include <algorithm>
#include <ctime>
#include <utility>

namespace acc {

using std::chrono::nanoseconds;

namespace {

nanoseconds read_clock(clockid_t clock) {
  timespec now{};
  ::clock_gettime(clock, &now);
  return std::chrono::seconds{now.tv_sec} + nanoseconds{now.tv_nsec};
}

Instant to_instant(nanoseconds time) {
  return Instant{std::chrono::duration_cast<Instant::duration>(time)};
}

}  // namespace

Instant boot_now() { return to_instant(read_clock(CLOCK_BOOTTIME)); }

nanoseconds Clocks::ahead() const {
  return std::max(realtime, monotonic) - nanoseconds{boot.time_since_epoch()};
}

// Between two readings this process may be preempted, which looks like a step: the fastest reading
// counts.
Clocks read_clocks() {
  constexpr int kTries = 4;
  constexpr nanoseconds kQuick{std::chrono::microseconds{50}};
  Clocks best;
  nanoseconds least = nanoseconds::max();
  for (int i = 0; i < kTries && least > kQuick; ++i) {
    const auto before = read_clock(CLOCK_BOOTTIME);
    Clocks clocks;
    clocks.monotonic = read_clock(CLOCK_MONOTONIC);
    clocks.realtime = read_clock(CLOCK_REALTIME);
    const auto after = read_clock(CLOCK_BOOTTIME);
    clocks.boot = to_instant(after);
    if (after - before >= least) continue;
    least = after - before;
    best = clocks;
  }
  return best;
}

std::optional<Millis> ClockWatch::look(const Clocks& clocks) {
  const auto before = std::exchange(ahead_, clocks.ahead());
  const auto step = ahead_ - before;
  if (step <= kClockStep) return std::nullopt;
  return std::chrono::duration_cast<Millis>(step);
}

}  // namespace acc
