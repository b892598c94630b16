#pragma once

#include "common/duration.hpp"

#include <cstdint>
#include <optional>

/// The workers that are forked ahead of the next round: when another one is forked, and when none
/// is (pure).
///
///   none ──► growing ⇄ resting ──► complete      one worker at a time, with rests between them
///    ▲          │         │           │
///    └──────────┴─────────┴───────────┘          a round uses them, or they are lost
namespace acc::agent::preload {

class WaitingCourse {
 public:
  enum class Phase { none, resting, growing, complete };
  /// The workers of a round have their first steps to themselves.
  static constexpr Millis kQuiet{1'000};
  /// A rest takes so many times as long as the fork before it, so that what runs keeps the cores.
  static constexpr int kRestFactor = 4;
  /// A set that is lost so often is not forked again.
  static constexpr std::uint32_t kMostLosses = 3;
  /// All that are still to be forked may take this part of the memory that is free.
  static constexpr std::uint64_t kPartOfMemory = 4;

  /// @param workers  of the round that has started: as many as the next one is thought to have
  void round_started(std::uint32_t workers, Instant now);
  /// The round ends, or no other will follow: none is forked until the next one has started.
  void pause();
  /// When on_due() is to be called; nothing: not now.
  [[nodiscard]] std::optional<Instant> due() const { return due_; }
  /// The preloader can't fork yet.
  void postpone(Instant now) { due_ = now + kQuiet; }
  /// @param free_bytes      of the machine and the memory control group
  /// @param preloader_bytes  resident: a worker takes no more, as long as none was measured
  /// @return how many workers the set is to have, one more than it has; 0: none is to be forked
  [[nodiscard]] std::uint32_t on_due(std::uint64_t free_bytes, std::uint64_t preloader_bytes,
                                     Instant now);
  /// The worker that was asked for waits. @param own_bytes  that it shares with no other process
  void on_waits(std::uint64_t own_bytes, Instant now);
  /// A process of the set has ended, and so it is no more.
  void on_lost(Instant now);
  /// The preloader has ended, and the set with it.
  void on_preloader_ended(Instant now);
  /// A round uses them.
  void take();

  [[nodiscard]] Phase phase() const;
  [[nodiscard]] std::uint32_t waiting() const { return waiting_; }

 private:
  void start_anew(Instant now);

  std::uint32_t wanted_ = 0;
  std::uint32_t waiting_ = 0;
  std::optional<Instant> asked_;  ///< for one more, which doesn't wait yet
  std::optional<Instant> due_;
  std::uint64_t own_bytes_ = 0;  ///< of one of them; 0: none was measured
  std::uint32_t losses_ = 0;
  bool is_paused_ = true;
};

}  // namespace acc::agent::preload
