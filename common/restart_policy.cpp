#include "common/restart_policy.hpp"

#include <algorithm>
#include <cmath>

namespace acc {

namespace {

// A healthy time gives restarts back: one for each refill_after in it.
void refill(const RestartPolicy& policy, RestartLedger& ledger, Millis lived) {
  if (policy.refill_after <= Millis{0} || lived < Millis{0}) return;
  const auto refilled = static_cast<std::uint64_t>(lived / policy.refill_after);
  ledger.budget_used -=
      static_cast<std::uint32_t>(std::min<std::uint64_t>(refilled, ledger.budget_used));
}

}  // namespace

RestartDecision decide_restart(const RestartPolicy& policy, RestartLedger& ledger,
                               const FailedRound& round) {
  const bool healthy = round.lived >= policy.healthy_after;
  const bool progress = round.progress || (!policy.has_progress_file && healthy);

  if (round.is_final || (round.status && in_classes(policy.never_retry, *round.status)))
    return {RestartVerdict::never_retry, Millis{0}};
  ledger.without_progress = progress ? 0 : ledger.without_progress + 1;
  if (policy.max_no_progress > 0 && ledger.without_progress >= policy.max_no_progress)
    return {RestartVerdict::no_progress, Millis{0}};
  refill(policy, ledger, round.lived);
  if (ledger.budget_used >= policy.max_restarts) return {RestartVerdict::spent, Millis{0}};
  if (healthy || progress) ledger.quick_failures = 0;
  const Millis delay = restart_delay(policy, ledger.quick_failures, round.jitter_sample);
  ++ledger.quick_failures;
  ++ledger.budget_used;
  return {RestartVerdict::restart, delay};
}

bool may_restart(const RestartPolicy& policy, const RestartLedger& ledger) {
  if (policy.max_restarts == 0) return false;
  return ledger.budget_used < policy.max_restarts || policy.refill_after > Millis{0};
}

bool in_classes(const std::vector<CodeRange>& classes, const ExitStatus& status) {
  const int code = shell_code(status);
  return std::ranges::any_of(classes,
                             [&](const CodeRange& r) { return r.first <= code && code <= r.last; });
}

Millis restart_delay(const RestartPolicy& policy, std::uint32_t quick_failures,
                     double jitter_sample) {
  if (quick_failures == 0) return Millis{0};
  const double doubled = std::ldexp(static_cast<double>(policy.delay_base.count()),
                                    static_cast<int>(std::min(quick_failures - 1, 60U)));
  const double capped = std::min(doubled, static_cast<double>(policy.delay_max.count()));
  return Millis{std::llround(capped * (1 + policy.jitter * (2 * jitter_sample - 1)))};
}

}  // namespace acc
