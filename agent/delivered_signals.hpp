#pragma once

#include "common/duration.hpp"

#include <cstdint>
#include <map>
#include <optional>

namespace acc::agent {

/// Which signals a job's manager (signal_sender.hpp) sent to all processes of the job, so that the
/// workers have them. The guardian passes its own on, too: of both one is taken. Pure.
class DeliveredSignals {
 public:
  enum class From : std::uint8_t { manager, guardian, other };

  /// False: it is the other one's copy of a signal that was taken.
  bool take(int signo, From from, Instant now);
  /// When all processes got it; nothing: they didn't, or long ago.
  [[nodiscard]] std::optional<Instant> when(int signo, Instant now) const;

 private:
  struct Seen {
    std::optional<Instant> by_manager;
    std::optional<Instant> unmatched;  ///< one that was taken, whose copy hasn't come
    From unmatched_from = From::other;
  };
  std::map<int, Seen> seen_;
};

}  // namespace acc::agent
