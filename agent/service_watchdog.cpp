#include "agent/service_watchdog.hpp"

#include <utility>

namespace acc::agent {

ServiceWatchdog::ServiceWatchdog(boost::asio::io_context& io, const ServiceNotifier& notifier,
                                 std::function<bool()> is_well)
    : notifier_{notifier}, is_well_{std::move(is_well)}, timer_{io} {}

void ServiceWatchdog::begin() {
  const auto period = notifier_.watchdog_period();
  if (!period) return;
  if (!is_well_ || is_well_()) notifier_.feed_watchdog();
  timer_.expires_after(*period);
  timer_.async_wait([this](boost::system::error_code error) {
    if (!error) begin();
  });
}

}  // namespace acc::agent
