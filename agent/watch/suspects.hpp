#pragma once

#include "agent/watch/hang_detector.hpp"
#include "common/heartbeat_slot.hpp"
#include "common/ids.hpp"

#include <vector>

namespace acc::agent {

/// The workers of this node that may be the cause of a hang, and their heartbeats when they were
/// found so: whether they still are, later heartbeats tell (pure).
struct Suspects {
  std::vector<SilentRank> silent;
  /// Beside silent ones: those that are so for half of what they may be.
  std::vector<SilentRank> nearly{};
  std::vector<LocalRank> stuck{};
  /// Of those of which no heartbeat is due yet, if they send any.
  std::vector<LocalRank> starting{};
  std::vector<heartbeat::Beat> beats{};  ///< by local rank; empty: of a stall, they say nothing

  /// Silent and nearly so; none: those that were silent go on.
  [[nodiscard]] std::vector<SilentRank> still_silent(const std::vector<heartbeat::Beat>& now) const;
  [[nodiscard]] bool is_still_stuck(LocalRank rank, const std::vector<heartbeat::Beat>& now) const;
  /// Found silent, stuck or starting, and not so any more.
  [[nodiscard]] bool has_gone_on(LocalRank rank, const std::vector<heartbeat::Beat>& now) const;
  /// Or has one ended? @param lives  by local rank
  [[nodiscard]] bool has_any_gone_on(const std::vector<heartbeat::Beat>& now,
                                     const std::vector<bool>& lives) const;

 private:
  [[nodiscard]] bool is_one(LocalRank rank) const;
};

/// @param lives  by local rank
[[nodiscard]] std::vector<LocalRank> starting_ranks(const std::vector<heartbeat::Beat>& beats,
                                                    const std::vector<bool>& lives);

}  // namespace acc::agent
