#pragma once

#include "common/duration.hpp"

#include <algorithm>
#include <cstddef>
#include <optional>

namespace acc::agent {

/// Decides for one bounded queue whether more may be queued (P4). As long as its destination takes
/// anything, a full queue pushes back on the workers, as a pipe does. A destination that has taken
/// nothing for `patience` no longer holds them up: output is dropped until it moves again. Pure:
/// the time is passed in.
class DropPolicy {
 public:
  struct Limits {
    std::size_t queue_bytes = std::size_t{4} << 20U;
    Millis patience{60'000};
  };
  struct Queue {
    std::size_t bytes = 0;    ///< not yet taken by the destination
    Instant last_progress{};  ///< when it last took some
  };
  enum class Verdict {
    accept,  ///< read on
    hold,    ///< leave it in the worker's pipe and ask again: on progress, and at hold_until()
    drop,    ///< read and count as lost
  };

  explicit DropPolicy(Limits limits) : limits_{limits}, patience_{limits.patience} {}

  /// Before reading from a worker.
  Verdict ask(Instant now, const Queue& queue);
  /// When the answer turns from hold into drop unless there is progress; meaningful after `hold`.
  [[nodiscard]] Instant hold_until() const { return hold_until_; }
  [[nodiscard]] bool is_dropping() const { return dropping_since_.has_value(); }

  /// What has been read and can't be held back any more.
  enum class Origin {
    worker,      ///< read after ask()
    worker_end,  ///< the last bytes of a worker, no more than its pipe holds
    agent,       ///< a line of our own
  };
  /// Whether `bytes` of it go into the queue, of which `queued` are still there; otherwise they are
  /// lost.
  [[nodiscard]] bool admit(Origin origin, std::size_t bytes, std::size_t queued);

  /// A pipe of this round leads here: what it holds when its worker dies fits on top of the limit.
  void reserve(std::size_t pipe_bytes) { reserved_ += pipe_bytes; }
  /// With the whole patience again, and without the pipes of the last round; `queued` is what that
  /// one left behind.
  void begin_round(std::size_t queued);
  /// Until the next round: no longer than this.
  void shorten(Millis patience) {
    patience_ = std::min(patience_, patience);
    is_suspended_ = false;  // the workers go on, to end
  }
  /// The job is suspended, and so is what reads it in the same pipeline: that time doesn't count.
  void suspend() { is_suspended_ = true; }
  [[nodiscard]] bool is_suspended() const { return is_suspended_; }
  void resume();
  [[nodiscard]] Millis patience() const { return patience_; }
  [[nodiscard]] bool is_shortened() const { return patience_ < limits_.patience; }

 private:
  Limits limits_;
  Millis patience_;
  std::optional<Instant> full_since_;
  Instant hold_until_{};
  bool has_held_ = false;  // the last answer: the next question comes at hold_until_
  bool is_suspended_ = false;
  std::optional<Instant> dropping_since_;
  std::size_t reserved_ = 0;
  std::size_t carried_ = 0;
};

}  // namespace acc::agent
