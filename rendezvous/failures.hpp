#pragma once

#include "common/duration.hpp"
#include "rendezvous/messages.hpp"

#include <chrono>
#include <optional>
#include <string>
#include <utility>

namespace acc::rendezvous {

/// Of a node without workers, for the others. @param is_taken_over  the round; an order to stop of
/// the coordinator before isn't known
inline const char* why_stopped(bool is_taken_over) {
  return is_taken_over ? "stopped its workers when the coordinator was lost, or by its order"
                       : "stopped its workers: it had no contact with the coordinator for a lease";
}

/// The coordinator's: failures of this round, and the root cause of the latest failed round (for
/// Close).
struct RoundFailures {
  std::optional<Failure> now;
  Instant now_at{};  ///< also set when a node is lost, which is not a Failure yet
  std::optional<Failure> cause;
  Instant cause_at{};
  bool progress = false;  ///< in this round

  void set_node_lost(Rank first, std::string node, std::string host, std::string why) {
    now = Failure{};
    now->kind = Failure::Kind::node_lost;
    now->rank = first;
    now->node = std::move(node);
    now->host = std::move(host);
    now->cause = std::move(why);
  }
  /// A failure of `at` is from before this coordinator's term, and the loss that the round is ended
  /// for came later, with the loss of the last coordinator.
  [[nodiscard]] bool has_lost_node_after(Instant at, Instant term) const {
    return now && now->kind == Failure::Kind::node_lost && at < term;
  }
};

/// An agent's: the failure that ends this round, as its coordinator told it. A successor doesn't
/// know it.
class ToldFailure {
 public:
  void note(const Stop& stop, Instant now) {
    if (!stop.failure || failure_) return;
    failure_ = stop.failure;
    at_ = now;
  }
  void reset() { failure_.reset(); }
  [[nodiscard]] std::optional<Failure> as_of(Instant now) const {
    auto failure = failure_;
    if (failure) failure->ago += std::chrono::duration_cast<Millis>(now - at_);
    return failure;
  }

 private:
  std::optional<Failure> failure_;
  Instant at_{};
};

}  // namespace acc::rendezvous
