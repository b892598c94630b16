#pragma once

#include "common/clocks.hpp"

#include <chrono>
#include <cstdint>

/// When the workers of a node must be dead, decided from all of its clocks (pure).
namespace acc::agent {

/// What the coordinator granted, as the agent notes it.
struct LeaseTerms {
  std::int64_t ends_ns = 0;  ///< by CLOCK_BOOTTIME; 0: there is no lease
  /// Clocks::ahead() when the lease was confirmed.
  std::int64_t ahead_ns = 0;
};

/// SpawnFailure::step, with ETIME, when the lease was over before exec: the program never ran.
inline constexpr char kLeaseStep[] = "lease";

enum class LeaseState : std::uint8_t {
  none,
  holds,
  doubted,  ///< its clock may have stood still since: it must be confirmed soon
  over,
};

/// Within it a lease of that length must be confirmed once it is doubted; as Timings::confirmation.
[[nodiscard]] Millis confirmation_of(Millis lease);
[[nodiscard]] LeaseState judge_lease(const LeaseTerms& terms, const Clocks& clocks);

}  // namespace acc::agent
