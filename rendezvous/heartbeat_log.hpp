#pragma once

#include "common/duration.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <optional>
#include <utility>

namespace acc::rendezvous {

/// The heartbeats that an agent sent last, by number, and what their answers show: the round trip,
/// and the coordinator's newest stamp, which the next heartbeat echoes. Pure.
class HeartbeatLog {
 public:
  /// @return the number of the next heartbeat, which is sent now
  std::uint32_t send(Instant now) {
    ++last_;
    sent_[last_ % kKept] = {last_, now};
    return last_;
  }
  /// Nothing: it was never sent, or isn't one of the last.
  [[nodiscard]] std::optional<Instant> sent_at(std::uint32_t heartbeat) const {
    const auto& [number, when] = sent_[heartbeat % kKept];
    return number == heartbeat && when != Instant{} ? std::optional{when} : std::nullopt;
  }
  [[nodiscard]] std::optional<Millis> round_trip_of(std::uint32_t heartbeat, Instant now) const {
    const auto when = sent_at(heartbeat);
    if (!when) return std::nullopt;
    return std::chrono::duration_cast<Millis>(now - *when);
  }
  /// No answer to an earlier one proves anything any more.
  void forget() { sent_.fill({}); }

  /// Kept close to the shortest recent one: a pause of either side says nothing about the network.
  void answered(std::uint32_t heartbeat, Instant now) {
    const auto took = round_trip_of(heartbeat, now);
    if (!took) return;
    const auto longer = round_trip_ + round_trip_ / 8 + Millis{1};
    round_trip_ = round_trip_ == Millis{0} ? *took : std::min(*took, longer);
  }
  [[nodiscard]] Millis round_trip() const { return round_trip_; }

  /// From a coordinator that is new to this agent, or began a round.
  void set_stamp(std::uint64_t stamp) { stamp_ = stamp; }
  void note_stamp(std::uint64_t stamp) { stamp_ = std::max(stamp_, stamp); }
  [[nodiscard]] std::uint64_t stamp() const { return stamp_; }

 private:
  static constexpr std::size_t kKept = 64;
  std::array<std::pair<std::uint32_t, Instant>, kKept> sent_{};
  std::uint32_t last_ = 0;
  std::uint64_t stamp_ = 0;
  Millis round_trip_{0};
};

}  // namespace acc::rendezvous
