#include "agent/lease_terms.hpp"

#include "rendezvous/planted.hpp"

#include <algorithm>

namespace acc::agent {

using std::chrono::nanoseconds;

Millis confirmation_of(Millis lease) { return std::max<Millis>(lease / 4, Millis{500}); }

// CLOCK_BOOTTIME counts what CLOCK_MONOTONIC leaves out, the time for which the machine was
// suspended: that the lease is over is certain. A wall clock that went forward is no such proof:
// after a pause of a virtual machine it is set right, but an administrator or NTP may have set it,
// too. One that went back proves nothing.
LeaseState judge_lease(const LeaseTerms& terms, const Clocks& clocks) {
  if (terms.ends_ns == 0) return LeaseState::none;
  const nanoseconds now =
      rendezvous::planted::lease_by_monotonic
          ? clocks.monotonic
          : std::chrono::duration_cast<nanoseconds>(clocks.boot.time_since_epoch());
  if (now.count() >= terms.ends_ns) return LeaseState::over;
  const nanoseconds step = clocks.ahead() - nanoseconds{terms.ahead_ns};
  const bool is_doubted = step > kClockStep && !rendezvous::planted::trust_stopped_clocks;
  return is_doubted ? LeaseState::doubted : LeaseState::holds;
}

}  // namespace acc::agent
