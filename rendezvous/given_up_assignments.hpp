#pragma once

#include "common/duration.hpp"

#include <optional>
#include <string>
#include <utility>

namespace acc::rendezvous {

/// Assignments that were given up before their round began (pure). Each is followed by another one,
/// which would go on for ever if the reason stays: they share one join timeout.
class GivenUpAssignments {
 public:
  // ---- events ----
  /// The coordinator gathers nodes; `is_given_up`: an assignment was given up, else a round
  /// has run.
  void gathers(bool is_given_up, Instant now) {
    if (!is_given_up) *this = {};
    if (is_given_up && !since_) since_ = now;
  }
  /// etcd was asked to store the round.
  void commits(Instant now) { committing_since_ = now; }
  /// A problem with etcd, as a sentence.
  void note_trouble(std::string text) { trouble_ = std::move(text); }

  [[nodiscard]] bool any() const { return since_.has_value(); }
  /// When the join timeout began, for nodes that were last gathered from `gathering_since` on.
  [[nodiscard]] Instant since(Instant gathering_since) const {
    return since_.value_or(gathering_since);
  }
  [[nodiscard]] Millis commit_took(Instant now) const {
    return std::chrono::duration_cast<Millis>(now - committing_since_.value_or(now));
  }
  /// Why no round has begun, for people.
  [[nodiscard]] std::string text(Millis limit) const {
    const std::string none = "no round has begun within " + acc::describe(limit) + ": ";
    if (!committing_since_) return none + "each time a node did not answer in time, or was lost";
    return none + "etcd has not stored one in time" +
           (trouble_.empty() ? "" : " (" + trouble_ + ")");
  }

 private:
  std::optional<Instant> since_;             ///< the first one
  std::optional<Instant> committing_since_;  ///< the newest round
  std::string trouble_;
};

}  // namespace acc::rendezvous
