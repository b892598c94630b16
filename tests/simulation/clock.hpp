#pragma once

#include "common/duration.hpp"

#include <chrono>
#include <cstdint>

namespace acc::simulation {

/// True time since the world began; nobody in it can read it.
using Time = std::chrono::nanoseconds;
inline constexpr Time kSecond{1'000'000'000};
inline constexpr Time kNever = Time::max();

/// Uniform in [from, to).
template <class Chance>
Time between(Chance& random, Time from, Time to) {
  return from + Time{static_cast<std::int64_t>(random.fraction() *
                                               static_cast<double>((to - from).count()))};
}

/// The steady clock of one node: began at another moment than all others, and runs a little faster
/// or slower.
class Clock {
 public:
  Clock() = default;
  Clock(Time offset, std::int64_t parts_per_million) : offset_{offset}, ppm_{parts_per_million} {}

  [[nodiscard]] Instant at(Time t) const { return Instant{offset_ + t + t * ppm_ / kMillion}; }
  /// The first moment at which this clock shows `instant` or more.
  [[nodiscard]] Time when(Instant instant) const {
    const Time passed = instant.time_since_epoch() - offset_;
    if (passed > kFar) return kNever;
    Time t = passed * kMillion / (kMillion + ppm_);
    while (at(t) < instant) ++t;
    return t;
  }

 private:
  static constexpr std::int64_t kMillion = 1'000'000;
  static constexpr Time kFar = std::chrono::hours{2};
  Time offset_{0};
  std::int64_t ppm_ = 0;
};

}  // namespace acc::simulation
