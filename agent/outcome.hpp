#pragma once

#include "agent/supervisor.hpp"
#include "rendezvous/messages.hpp"

namespace acc::agent {

/// What the coordinator says of the job's end, in the supervisor's words.
[[nodiscard]] constexpr Verdict verdict_of(rendezvous::Outcome outcome) {
  using rendezvous::Outcome;
  switch (outcome) {
    case Outcome::succeeded:
      return Verdict::succeeded;
    case Outcome::failed:
      return Verdict::failed;
    case Outcome::never_retry:
      return Verdict::never_retry;
    case Outcome::no_progress:
      return Verdict::no_progress;
    case Outcome::cannot_start:
      return Verdict::cannot_start;
    case Outcome::stopped:
      return Verdict::stopped;
    case Outcome::preempted:
      return Verdict::preempted;
    case Outcome::unkillable:
      return Verdict::unkillable;
    case Outcome::nodes_missing:
      return Verdict::nodes_missing;
  }
  return Verdict::failed;
}

}  // namespace acc::agent
