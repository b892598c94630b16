#include "agent/supervisor_timers.hpp"

#include "common/duration.hpp"

#include <utility>

namespace acc::agent {

SupervisorTimers::SupervisorTimers(boost::asio::io_context& io, std::function<void(Timer)> on_fired)
    : on_fired_{std::move(on_fired)}, timers_{boost::asio::steady_timer{io},
                                              boost::asio::steady_timer{io},
                                              boost::asio::steady_timer{io},
                                              boost::asio::steady_timer{io},
                                              boost::asio::steady_timer{io},
                                              boost::asio::steady_timer{io},
                                              boost::asio::steady_timer{io},
                                              boost::asio::steady_timer{io}} {}

void SupervisorTimers::arm(Timer timer, Millis after) {
  auto& armed = timers_.at(static_cast<std::size_t>(timer));
  armed.expires_after(after);
  armed.async_wait([this, timer, &armed](boost::system::error_code cancelled) {
    if (cancelled || armed.expiry() > clock_now()) return;  // armed anew while this was queued
    on_fired_(timer);
  });
}

void SupervisorTimers::disarm(Timer timer) { timers_.at(static_cast<std::size_t>(timer)).cancel(); }

Instant SupervisorTimers::expiry(Timer timer) const {
  return timers_.at(static_cast<std::size_t>(timer)).expiry();
}

}  // namespace acc::agent
