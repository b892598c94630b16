#pragma once

#include "common/ids.hpp"
#include "common/restart_policy.hpp"

#include <cstdint>
#include <utility>

namespace acc::agent {

/// Counts the failed attempts of a job, each once, since this node takes part: on several nodes the
/// failure may be here, be told by the coordinator as it ends the round, or be told with the next
/// round, or the end of the job, alone, where the workers here had ended. Pure.
class FailedAttempts {
 public:
  void attempt_begins() { is_counted_ = false; }
  void attempt_failed() {
    if (!std::exchange(is_counted_, true)) ++count_;
  }
  /// The job ends, and its coordinator names the failure of its last failed attempt: nothing else
  /// reports that one where the workers here had finished.
  void job_failed(Round failed, Round present) {
    if (failed == present) attempt_failed();
  }
  /// The coordinator's, with its order for the next round. A restart that was asked for uses up
  /// nothing.
  void take(const RestartLedger& ledger) {
    if (ledger.budget_used > budget_used_) attempt_failed();
    budget_used_ = ledger.budget_used;
  }
  [[nodiscard]] std::uint32_t count() const { return count_; }

 private:
  bool is_counted_ = true;  ///< the present one, or there is none
  std::uint32_t budget_used_ = 0;
  std::uint32_t count_ = 0;
};

}  // namespace acc::agent
