#pragma once

#include <functional>
#include <utility>

namespace acc::agent::daemon {

/// Whether the caller of one request still waits for the reply. Its connection and the handler
/// share it, on one thread.
class CallerLink {
 public:
  [[nodiscard]] bool is_closed() const { return is_closed_; }
  void close() {
    is_closed_ = true;
    if (const auto told = std::exchange(told_, nullptr)) told();
  }
  /// Calls `told` once, at once if the caller has gone already. One at a time: it replaces an
  /// earlier one; null: none any more.
  void when_closed(std::function<void()> told) {
    told_ = std::move(told);
    if (is_closed_) close();
  }

 private:
  bool is_closed_ = false;
  std::function<void()> told_;
};

}  // namespace acc::agent::daemon
