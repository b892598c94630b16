#include "agent/delivered_signals.hpp"

namespace acc::agent {

namespace {

/// Between a signal and its copy, on a machine that is busy; and until a job on several nodes has
/// agreed on what the signal asks for.
constexpr Millis kBelongTogether{5'000};

}  // namespace

bool DeliveredSignals::take(int signo, From from, Instant now) {
  auto& seen = seen_[signo];
  if (from == From::manager) seen.by_manager = now;
  if (from == From::other) return true;
  if (seen.unmatched && seen.unmatched_from != from && now - *seen.unmatched < kBelongTogether) {
    seen.unmatched.reset();
    return false;
  }
  seen.unmatched = now;
  seen.unmatched_from = from;
  return true;
}

std::optional<Instant> DeliveredSignals::when(int signo, Instant now) const {
  const auto found = seen_.find(signo);
  if (found == seen_.end() || !found->second.by_manager) return std::nullopt;
  const auto when = *found->second.by_manager;
  return now - when < kBelongTogether ? std::optional{when} : std::nullopt;
}

}  // namespace acc::agent
