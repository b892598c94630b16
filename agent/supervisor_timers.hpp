#pragma once

#include "agent/group_state.hpp"

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

#include <array>
#include <cstddef>
#include <functional>

namespace acc::agent {

/// The timers that the supervisor arms and disarms; one of each kind.
///
/// Used on the loop's thread only. The io_context outlives them.
class SupervisorTimers {
 public:
  SupervisorTimers(boost::asio::io_context& io, std::function<void(Timer)> on_fired);

  /// One that is armed already is armed anew.
  void arm(Timer timer, Millis after);
  void disarm(Timer timer);
  /// When the timer fires, or fired last.
  [[nodiscard]] Instant expiry(Timer timer) const;

 private:
  std::function<void(Timer)> on_fired_;
  std::array<boost::asio::steady_timer, kTimers> timers_;
};

}  // namespace acc::agent
