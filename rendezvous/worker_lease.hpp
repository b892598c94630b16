#pragma once

#include "common/duration.hpp"

#include <optional>

namespace acc::rendezvous {

/// The lease by which this node's workers live, as this agent knows it (pure).
class WorkerLease {
 public:
  [[nodiscard]] std::optional<Instant> end() const { return end_; }
  [[nodiscard]] bool is_valid(Instant now) const { return end_ && now < *end_; }
  [[nodiscard]] bool is_over(Instant now) const { return end_ && now >= *end_; }
  /// It ends early unless confirmed.
  [[nodiscard]] bool is_doubted() const { return is_doubted_; }

  /// @return whether that is later than the end known so far
  bool extend(Instant end) {
    if (end_ && *end_ >= end) return false;
    end_ = end;
    is_doubted_ = false;
    return true;
  }
  /// @return whether that is earlier
  bool doubt(Instant end) {
    if (!end_ || *end_ <= end) return false;
    end_ = end;
    is_doubted_ = true;
    return true;
  }
  void drop() { end_.reset(); }

 private:
  std::optional<Instant> end_;
  bool is_doubted_ = false;
};

}  // namespace acc::rendezvous
