#pragma once

#include "agent/environment.hpp"
#include "agent/job_plan.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

namespace acc::rendezvous {
struct RoundPlace;
}

namespace acc::agent {

/// What holds for the current round besides the supervisor's state: this node's place in it, how
/// many restarts the job may have, and why the last one was made. On one node it follows from the
/// plan, on several from the coordinator's orders.
class RoundTerms {
 public:
  /// The plan outlives the terms.
  explicit RoundTerms(const JobPlan& plan)
      : plan_{plan}, max_restarts_{plan.restart.max_restarts} {}

  /// The coordinator's order for the next round.
  void take(const rendezvous::RoundPlace& order);
  void set_restart_reason(std::string reason) { restart_reason_ = std::move(reason); }

  /// Nothing: one node, or no round was ordered yet.
  [[nodiscard]] const std::optional<Assignment>& place() const { return place_; }
  [[nodiscard]] WorldSize world_size() const {
    return place_ ? place_->world_size : plan_.world_size;
  }
  [[nodiscard]] std::uint32_t nodes() const { return place_ ? place_->nodes : 1; }
  [[nodiscard]] NodeRank node_rank() const { return place_ ? place_->node_rank : NodeRank{0}; }
  [[nodiscard]] std::uint32_t max_restarts() const { return max_restarts_; }
  /// Of the next restart, as soon as it is known, else of the last one. Empty: there was none yet.
  [[nodiscard]] const std::string& restart_reason() const { return restart_reason_; }
  /// Why the last round was ordered: "rank 3 on b exited with code 1". Empty: the first one, or one
  /// node.
  [[nodiscard]] const std::string& started_after() const { return started_after_; }

 private:
  const JobPlan& plan_;
  std::optional<Assignment> place_;
  std::uint32_t max_restarts_;
  std::string restart_reason_;
  std::string started_after_;
};

}  // namespace acc::agent
