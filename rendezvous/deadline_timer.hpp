#pragma once

#include "common/alive.hpp"
#include "common/clocks.hpp"
#include "common/duration.hpp"

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

#include <functional>
#include <utility>

namespace acc::rendezvous {

/// By clock_now(), from a time by boot_now().
[[nodiscard]] inline Instant timer_time(Instant boot) {
  return boot == Instant::max() ? boot : clock_now() + (boot - boot_now());
}

/// The timer behind the next_deadline() of a state machine. It may fire early, never late: it is
/// only ever set to an earlier time. One loop.
class DeadlineTimer {
 public:
  /// @param on_due  may destroy this object
  DeadlineTimer(boost::asio::io_context& io, std::function<void()> on_due)
      : timer_{io}, on_due_{std::move(on_due)} {}
  DeadlineTimer(const DeadlineTimer&) = delete;
  DeadlineTimer& operator=(const DeadlineTimer&) = delete;
  ~DeadlineTimer() { alive_.end(); }

  /// By clock_now(); Instant::max(): none.
  void fire_by(Instant due) {
    if (due >= armed_) return;
    armed_ = due;
    timer_.expires_at(due);
    timer_.async_wait(alive_.bind([this](boost::system::error_code error) {
      if (error) return;
      armed_ = Instant::max();
      const auto call = on_due_;  // outlives this object
      call();
    }));
  }

 private:
  boost::asio::steady_timer timer_;
  std::function<void()> on_due_;
  Instant armed_ = Instant::max();
  Alive alive_;
};

}  // namespace acc::rendezvous
