#pragma once

#include "agent/service_notify.hpp"

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

#include <functional>

namespace acc::agent {

/// Feeds systemd's watchdog (WatchdogSec=) as long as the loop turns. Without one it has no timer.
///
/// Used on the loop's thread only. The io_context and the notifier outlive it.
class ServiceWatchdog {
 public:
  /// @param is_well  asked each time: false lets systemd's time run out; empty: always well
  ServiceWatchdog(boost::asio::io_context& io, const ServiceNotifier& notifier,
                  std::function<bool()> is_well = {});
  void begin();

 private:
  const ServiceNotifier& notifier_;
  std::function<bool()> is_well_;
  boost::asio::steady_timer timer_;
};

}  // namespace acc::agent
