#pragma once

#include "common/duration.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>

namespace acc::agent {

/// Decides for one bounded queue whether more may come in. A sink that keeps moving may push back
/// on the workers; one that stands still costs them `patience` once, and is not given that right
/// again until `distrust` has passed or it moves. Pure: the time is passed in.
class DropPolicy {
 public:
  struct Limits {
    std::size_t queue_bytes = std::size_t{4} << 20U;
    Millis patience{100};
    Millis distrust{10'000};
    /// For the first stop of a sink that has not shown that anybody reads it: `| python3 filter.py`
    /// takes a while to begin.
    Millis first_patience{1000};
    /// What the kernel may take with nobody reading.
    std::size_t proof_bytes = std::size_t{256} << 10U;
    /// A sink that has taken so much since it lost its trust (or a full queue) has it again.
    std::size_t trust_bytes = std::size_t{1} << 20U;
  };
  struct Sink {
    std::size_t queued = 0;   ///< bytes that it has not taken yet
    Instant last_progress{};  ///< when it last took some
    std::uint64_t taken = 0;  ///< bytes, in all
  };
  enum class Verdict {
    accept,  ///< read on
    hold,    ///< leave it in the worker's pipe and ask again: on progress, and at hold_until()
    drop,    ///< read and count as lost
  };

  explicit DropPolicy(Limits limits) : limits_{limits} {}

  Verdict ask(Instant now, const Sink& sink);

  /// When the answer turns from hold into drop unless there is progress; meaningful after `hold`.
  [[nodiscard]] Instant hold_until() const { return hold_until_; }
  [[nodiscard]] bool is_dropping() const { return dropping_; }

 private:
  [[nodiscard]] bool is_trusted(Instant now, std::uint64_t taken) const;

  Limits limits_;
  std::optional<Instant> full_since_;
  Instant hold_until_{};
  std::optional<Instant> last_drop_;
  std::uint64_t taken_when_trusted_ = 0;  // at the drop that ended the trust
  bool dropping_ = false;
};

}  // namespace acc::agent
