#pragma once

#include "common/duration.hpp"

#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <optional>

namespace acc::rendezvous {

/// Since 1970.
[[nodiscard]] inline std::int64_t wall_clock_ms() {
  return std::chrono::duration_cast<Millis>(std::chrono::system_clock::now().time_since_epoch())
      .count();
}

/// How far this machine's wall clock is from the coordinator's (pure). Nothing here is decided by
/// wall clocks: the difference is told to people, who compare the times of logs and events.
class ClockSkew {
 public:
  /// @param limit  0: nothing is judged
  explicit ClockSkew(Millis limit) : limit_{limit} {}

  /// @param theirs_ms  the coordinator's clock, read between our request and its answer
  /// @param ours_ms    ours, at the answer
  /// @return how far ours is ahead (negative: behind), once: when it is beyond the limit for sure,
  /// wherever within the round trip the other clock was read
  std::optional<Millis> judge(std::int64_t theirs_ms, std::int64_t ours_ms, Millis round_trip) {
    if (limit_ <= Millis{0} || is_told_ || theirs_ms <= 0 || round_trip > kLongestTrip)
      return std::nullopt;
    const Millis half = round_trip / 2;
    const Millis ahead = Millis{ours_ms - theirs_ms} - half;
    const Millis sure = Millis{std::abs(ahead.count())} - half;
    if (sure <= limit_) return std::nullopt;
    is_told_ = true;
    return ahead;
  }

 private:
  static constexpr Millis kLongestTrip{60'000};
  Millis limit_;
  bool is_told_ = false;
};

}  // namespace acc::rendezvous
