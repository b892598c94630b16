#pragma once

#include <string_view>

namespace acc::runtime {

class Group;

/// The monitor of a process, enabled by environment variables: ACC_FLIGHT_DIR=DIR     each rank's
/// last calls are written to DIR when its group breaks, at SIGUSR2, and at SIGTERM before it ends
/// the process (handlers are installed only then; earlier ones are called too):
/// DIR/flight-GROUP-rankR-PID.jsonl ACC_WATCHDOG=SECONDS   a call that runs for so long is reported
/// on stderr, with the ranks it waits
///                          for; again after twice the time, and so on
/// Its thread runs while there are groups and one of the two is enabled.
namespace monitor {

void watch(Group& group);
void forget(Group& group) noexcept;
/// Writes the flight record if enabled; a failure is reported on stderr.
void dump(Group& group, std::string_view why) noexcept;

}  // namespace monitor
}  // namespace acc::runtime
