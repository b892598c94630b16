#pragma once

#include "common/duration.hpp"

#include <algorithm>
#include <string>

namespace acc::rendezvous {

/// The job's time limits, from which all others are derived; the same on all of its nodes.
struct Timings {
  static constexpr Millis kLeastTimeout{250};

  Millis heartbeat_timeout{5'000};  ///< silence after which a peer counts as lost
  Millis lease{10'000};  ///< time for which workers live without contact to the coordinator

  /// Why heartbeat_timeout can't be used. Empty: it can.
  [[nodiscard]] std::string complaint() const {
    if (heartbeat_timeout >= kLeastTimeout) return {};
    return acc::describe(heartbeat_timeout) +
           " is too short to tell a lost machine from a busy one: 250ms or more";
  }
  /// Interval between two heartbeats.
  [[nodiscard]] Millis heartbeat_interval() const {
    return std::max<Millis>(heartbeat_timeout / 5, Millis{50});
  }
  /// A lease must be longer: a peer counts as lost, and is heard of no more, before it ends.
  [[nodiscard]] Millis least_lease() const { return heartbeat_timeout + 2 * heartbeat_interval(); }
  /// Time limit for confirming a lease after a doubt about the clocks.
  [[nodiscard]] Millis confirmation() const {
    return std::max<Millis>(heartbeat_timeout / 2, Millis{500});
  }
  /// Time within which an agent that lives has joined again after its connection was closed.
  [[nodiscard]] Millis return_limit() const { return heartbeat_timeout + lease; }
  /// Time that the coordinator waits beyond the end of a lease: a tenth for clocks of different
  /// speed, the rest until the guardian's SIGKILL has taken effect.
  [[nodiscard]] Millis lease_slack() const { return lease / 10 + Millis{300}; }
};

}  // namespace acc::rendezvous
