#pragma once

#include "runtime/group/flight_recorder.hpp"
#include "runtime/group/group_facts.hpp"

#include <string_view>

namespace acc::runtime {

/// The monitor of a process, enabled by environment variables:
///   ACC_FLIGHT_DIR=DIR    each rank's last calls are written to DIR/flight-GROUP-rankR-PID.jsonl
///                         when its group breaks, at SIGUSR2, and at SIGTERM before it ends the
///                         process (handlers are installed only then; earlier ones are called too)
///   ACC_WATCHDOG=SECONDS  a call that runs for so long is reported on stderr, with the ranks it
///                         waits for; again after twice the time, and so on
/// Its thread runs while there are groups and one of the two is enabled.
namespace monitor {

/// What the monitor reads of a group, from its thread too: all outlive forget(). A group is known
/// by the address of this.
struct Watched {
  const GroupFacts& facts;
  const FlightRecorder& record;
  const Backend& backend;  ///< asked which ranks a call waits for
};

void watch(const Watched& group);
void forget(const Watched& group) noexcept;
/// Writes the flight record if enabled; a failure is reported on stderr.
void dump(const Watched& group, std::string_view why) noexcept;

}  // namespace monitor
}  // namespace acc::runtime
