#pragma once

#include "common/duration.hpp"

#include <chrono>
#include <cstdint>
#include <optional>

namespace acc::simulation {

/// True time since the start of the world; no process in it can read it.
using Time = std::chrono::nanoseconds;
inline constexpr Time kSecond{1'000'000'000};
inline constexpr Time kNever = Time::max();

/// Uniform in [from, to).
template <class Chance>
Time between(Chance& random, Time from, Time to) {
  return from + Time{static_cast<std::int64_t>(random.fraction() *
                                               static_cast<double>((to - from).count()))};
}

/// Clock of one node that measures its leases: it began at a different time than all others, runs
/// slightly fast or slow, and stops while its virtual machine is paused.
class Clock {
 public:
  Clock() = default;
  Clock(Time offset, std::int64_t parts_per_million) : offset_{offset}, ppm_{parts_per_million} {}

  /// At the present time, or a later one.
  [[nodiscard]] Instant at(Time t) const {
    const Time run = (stopped_ ? *stopped_ : t) - missed_;
    return Instant{offset_ + run + run * ppm_ / kMillion};
  }
  /// The first time at which this clock shows `instant` or more, unless it stops again.
  [[nodiscard]] Time when(Instant instant) const {
    const Time passed = instant.time_since_epoch() - offset_;
    if (stopped_ || passed > kFar) return kNever;
    Time t = passed * kMillion / (kMillion + ppm_) + missed_;
    while (at(t) < instant) ++t;
    return t;
  }
  void stop(Time now) {
    if (!stopped_) stopped_ = now;
  }
  /// @return how long it was stopped
  Time go_on(Time now) {
    if (!stopped_) return Time{0};
    const Time stood = now - *stopped_;
    missed_ += stood;
    stopped_.reset();
    return stood;
  }

 private:
  static constexpr std::int64_t kMillion = 1'000'000;
  static constexpr Time kFar = std::chrono::hours{2};
  Time offset_{0};
  std::int64_t ppm_ = 0;
  Time missed_{0};
  std::optional<Time> stopped_;
};

}  // namespace acc::simulation
