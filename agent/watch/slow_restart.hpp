#pragma once

#include "common/duration.hpp"
#include "common/heartbeat_slot.hpp"

#include <algorithm>
#include <chrono>
#include <optional>
#include <vector>

namespace acc::agent {

/// Finds out, once in a job, that most of a restart passed in the new workers before their first
/// heartbeat: time that a warm start shortens (pure; measured by heartbeats, within a second).
class SlowRestart {
 public:
  struct Found {
    Millis whole{0};    ///< from the failure to the last worker's first heartbeat
    Millis workers{0};  ///< of that, since the workers were started
  };

  void round_ended(bool is_lost, Instant now) {
    lost_ = is_lost ? std::optional{now} : std::nullopt;
    started_.reset();
  }
  void round_started(Instant now) { started_ = now; }
  /// @param beats  of all workers of the round
  std::optional<Found> look(const std::vector<heartbeat::Beat>& beats) {
    const auto has_begun = [](const heartbeat::Beat& beat) { return beat.beats > 0; };
    if (!lost_ || !started_ || is_told_ || beats.empty() || !std::ranges::all_of(beats, has_begun))
      return std::nullopt;
    // Others may have sent more since; the last one to begin has sent the fewest.
    const auto last = std::ranges::min_element(beats, {}, &heartbeat::Beat::beats);
    const Instant begun{std::chrono::nanoseconds{last->time_ns}};
    const Found found{std::chrono::duration_cast<Millis>(begun - *lost_),
                      std::chrono::duration_cast<Millis>(begun - *started_)};
    lost_.reset();  // this round is judged
    if (found.workers < kWorthTelling || 2 * found.workers < found.whole) return std::nullopt;
    is_told_ = true;
    return found;
  }

 private:
  static constexpr Millis kWorthTelling{2'000};

  std::optional<Instant> lost_;
  std::optional<Instant> started_;
  bool is_told_ = false;
};

}  // namespace acc::agent
