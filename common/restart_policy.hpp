#pragma once

#include "common/duration.hpp"
#include "common/exit_status.hpp"

#include <cstdint>
#include <optional>
#include <vector>

/// Whether a failed round is tried again (pure). The supervisor of one machine and the coordinator
/// of several use the same rules.
namespace acc {

/// Inclusive range of exit codes; a signal counts as 128 + its number.
struct CodeRange {
  int first = 0;
  int last = 0;
  friend bool operator==(const CodeRange&, const CodeRange&) = default;
};

struct RestartPolicy {
  std::uint32_t max_restarts = 0;
  /// Delays are 0, base, 2 × base, 4 × base … up to max, each ± jitter; a healthy round restarts
  /// the sequence at 0.
  Millis delay_base{1000};
  Millis delay_max{60'000};
  double jitter = 0.1;           ///< fraction of the delay
  Millis healthy_after{60'000};  ///< a round that lasted this long was healthy
  /// Each healthy period of this length gives one restart back; 0: never.
  Millis refill_after{0};
  /// End after this many failed rounds in a row without progress; 0: off.
  std::uint32_t max_no_progress = 0;
  /// A change of that file is progress, as is a reported checkpoint; without it a healthy round is,
  /// too. Its path is each node's own (JobPlan).
  bool has_progress_file = false;
  std::vector<CodeRange> never_retry;  ///< --no_restart_codes: end the job immediately
};

/// Restarts spent so far. The ledger belongs to the job: another coordinator continues it.
struct RestartLedger {
  std::uint32_t restarts = 0;     ///< done so far, as workers see it; never goes down
  std::uint32_t budget_used = 0;  ///< goes down again by refill_after
  /// In a row, without a healthy round in between: increases the delay.
  std::uint32_t quick_failures = 0;
  std::uint32_t without_progress = 0;
  friend bool operator==(const RestartLedger&, const RestartLedger&) = default;
};

struct FailedRound {
  /// Of the worker that failed first; empty: a node was lost, which no exit code class covers.
  std::optional<ExitStatus> status;
  Millis lived{0};             ///< from the round's start to the failure
  bool progress = false;       ///< --progress_file changed, or a checkpoint was reported
  double jitter_sample = 0.5;  ///< uniform in [0, 1), for the jitter
  bool is_final = false;       ///< the worker said that a restart won't help
};

enum class RestartVerdict { restart, spent, never_retry, no_progress };
struct RestartDecision {
  RestartVerdict verdict = RestartVerdict::spent;
  Millis delay{0};  ///< only with `restart`
};

/// Records a failed round and decides what follows. With `restart` the caller adds 1 to
/// ledger.restarts when the next round really starts.
RestartDecision decide_restart(const RestartPolicy& policy, RestartLedger& ledger,
                               const FailedRound& round);

/// Whether a failure of the present round may be followed by another one, as far as can be known while it runs.
[[nodiscard]] bool may_restart(const RestartPolicy& policy, const RestartLedger& ledger);

[[nodiscard]] bool in_classes(const std::vector<CodeRange>& classes, const ExitStatus& status);
/// 0 for the first quick failure, then base, 2 × base … up to the maximum, ± jitter by
/// `jitter_sample` in [0, 1).
[[nodiscard]] Millis restart_delay(const RestartPolicy& policy, std::uint32_t quick_failures,
                                   double jitter_sample);

}  // namespace acc
