#include "agent/daemon/signal_loop.hpp"

#include <utility>

namespace acc::agent::daemon {

SignalLoop::SignalLoop(boost::asio::io_context& io, std::initializer_list<int> signals,
                       Handler handler)
    : signals_{io}, handler_{std::move(handler)} {
  for (const int signo : signals) signals_.add(signo);
}

void SignalLoop::start() {
  if (is_waiting_) return;
  signals_.async_wait([this](boost::system::error_code error, int signo) {
    is_waiting_ = false;
    if (error) return;
    start();
    handler_(signo);
  });
  is_waiting_ = true;
}

}  // namespace acc::agent::daemon
