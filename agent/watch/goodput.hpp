#pragma once

#include "common/duration.hpp"

#include <algorithm>
#include <chrono>
#include <utility>

namespace acc::agent {

/// Where a job's time went (pure).
struct GoodputFigures {
  Millis total{0};
  Millis waiting{0};     ///< before the first workers ran
  Millis restarting{0};  ///< from a failure until the workers ran again
  Millis lost_work{0};   ///< work of failed rounds after their last complete checkpoint
  /// Whether lost_work is known: a program that reports no checkpoint may write some.
  bool knows_checkpoints = false;
  /// Of the total, 0 to 1.
  [[nodiscard]] double goodput() const {
    if (total <= Millis{0}) return 1;
    const auto lost = waiting + restarting + lost_work;
    const auto share = 1 - static_cast<double>(lost.count()) / static_cast<double>(total.count());
    return share < 0 ? 0 : share;
  }
};

class Goodput {
 public:
  explicit Goodput(Instant began) : began_{began}, since_{began} {}

  void round_started(Instant now) {
    if (is_idle()) (has_run_ ? restarting_ : waiting_) += now - since_;
    lost_ += std::exchange(unsaved_, {});  // another round: the last one was of no use after all
    has_run_ = is_running_ = true;
    since_ = saved_ = now;
  }
  /// A complete checkpoint: work up to here isn't lost any more.
  void checkpoint(Instant now) {
    knows_checkpoints_ = true;
    if (is_running_) saved_ = now;
  }
  /// @param is_lost  by a failure, or by an order that another one follows. A node whose workers
  /// have completed may learn later that they did so in vain.
  /// @param now  of a failure its time
  void round_ended(bool is_lost, Instant now) {
    if (!is_running_) return;
    is_running_ = false;
    is_lost_ = is_lost;
    // Of a failure that was reported late: a checkpoint may have come between.
    (is_lost ? lost_ : unsaved_) += std::max(now, saved_) - saved_;
    since_ = std::max(now, since_);
  }
  /// The workers here had completed, and another round follows: what the others did until `now` was
  /// no restart.
  void round_failed_elsewhere(Instant now) {
    if (is_running_ || !has_run_ || is_lost_) return;
    is_lost_ = true;
    lost_ += std::exchange(unsaved_, {});
    since_ = std::max(now, since_);
  }
  [[nodiscard]] GoodputFigures at(Instant now) const {
    auto waiting = waiting_;
    auto restarting = restarting_;
    if (is_idle()) (has_run_ ? restarting : waiting) += now - since_;
    using std::chrono::duration_cast;
    return {duration_cast<Millis>(now - began_), duration_cast<Millis>(waiting),
            duration_cast<Millis>(restarting),
            knows_checkpoints_ ? duration_cast<Millis>(lost_) : Millis{0}, knows_checkpoints_};
  }

 private:
  /// No worker runs, and some will: not known where those of the last round have completed.
  [[nodiscard]] bool is_idle() const { return !is_running_ && (!has_run_ || is_lost_); }

  Instant began_;
  Instant since_;    ///< of the round's end, or the beginning
  Instant saved_{};  ///< what was done before it is safe
  std::chrono::nanoseconds waiting_{0};
  std::chrono::nanoseconds restarting_{0};
  std::chrono::nanoseconds lost_{0};
  std::chrono::nanoseconds unsaved_{0};  ///< of a round that ended, and wasn't said to be lost
  bool has_run_ = false;
  bool is_running_ = false;
  bool is_lost_ = false;  ///< the last round
  bool knows_checkpoints_ = false;
};

}  // namespace acc::agent
