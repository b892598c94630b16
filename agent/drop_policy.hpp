#pragma once

#include "common/duration.hpp"

#include <cstddef>
#include <optional>

namespace acc::agent {

/// Decides for one bounded queue whether more may come in. A sink that keeps moving may push back
/// on the workers; one that stands still costs them `patience` once, and is not given that right
/// again until `distrust` has passed. Pure: the time is passed in.
class DropPolicy {
 public:
  struct Limits {
    std::size_t queue_bytes = std::size_t{4} << 20U;
    Millis patience{100};
    Millis distrust{10'000};
  };
  enum class Verdict {
    accept,  ///< read on
    hold,    ///< leave it in the worker's pipe and ask again: on progress, and at hold_until()
    drop,    ///< read and count as lost
  };

  explicit DropPolicy(Limits limits) : limits_{limits} {}

  /// @param queued         bytes that the sink has not taken yet
  /// @param last_progress  when the sink last took some
  Verdict ask(Instant now, std::size_t queued, Instant last_progress);

  /// When the answer turns from hold into drop unless there is progress; meaningful after `hold`.
  [[nodiscard]] Instant hold_until() const { return hold_until_; }
  [[nodiscard]] bool is_dropping() const { return dropping_; }

 private:
  Limits limits_;
  std::optional<Instant> full_since_;
  Instant hold_until_{};
  std::optional<Instant> last_drop_;
  bool dropping_ = false;
};

}  // namespace acc::agent
