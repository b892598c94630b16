#pragma once

#include "common/duration.hpp"

#include <algorithm>
#include <cstddef>
#include <optional>

namespace acc::agent {

/// Decides for one bounded queue whether more may be queued (P4). As long as the sink makes any
/// progress, a full queue pushes back on the workers, as a pipe does. A sink that has taken nothing
/// for `patience` no longer holds them: output is dropped until it moves again. Pure: the time is
/// passed in.
class DropPolicy {
 public:
  struct Limits {
    std::size_t queue_bytes = std::size_t{4} << 20U;
    Millis patience{60'000};
  };
  struct Sink {
    std::size_t queued = 0;   ///< bytes that it has not taken yet
    Instant last_progress{};  ///< when it last took some
  };
  enum class Verdict {
    accept,  ///< read on
    hold,    ///< leave it in the worker's pipe and ask again: on progress, and at hold_until()
    drop,    ///< read and count as lost
  };

  explicit DropPolicy(Limits limits) : limits_{limits}, patience_{limits.patience} {}

  Verdict ask(Instant now, const Sink& sink);

  /// Until restore(): no longer than this. For the time in which the job is being stopped.
  void shorten(Millis patience) { patience_ = std::min(patience_, patience); }
  void restore() { patience_ = limits_.patience; }
  [[nodiscard]] Millis patience() const { return patience_; }
  [[nodiscard]] bool is_shortened() const { return patience_ < limits_.patience; }

  /// When the answer turns from hold into drop unless there is progress; meaningful after `hold`.
  [[nodiscard]] Instant hold_until() const { return hold_until_; }
  [[nodiscard]] bool is_dropping() const { return dropping_since_.has_value(); }

 private:
  Limits limits_;
  Millis patience_;
  std::optional<Instant> full_since_;
  Instant hold_until_{};
  std::optional<Instant> dropping_since_;
};

}  // namespace acc::agent
