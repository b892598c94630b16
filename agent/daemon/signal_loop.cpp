#include "agent/daemon/signal_loop.hpp"

#include <exception>
#include <utility>

namespace acc::agent::daemon {

SignalLoop::SignalLoop(boost::asio::io_context& io, std::initializer_list<int> signals,
                       Handler handler)
    : signals_{io}, handler_{std::move(handler)} {
  for (const int signo : signals) signals_.add(signo);
}

void SignalLoop::start() {
  if (is_waiting_) return;
  wait();
  is_waiting_ = true;
}

void SignalLoop::wait() {
  signals_.async_wait([this](boost::system::error_code error, int signo) {
    is_waiting_ = false;
    if (!error) on_signal(signo);
  });
}

void SignalLoop::on_signal(int signo) {
  std::exception_ptr failed;
  try {
    start();
  } catch (...) {
    failed = std::current_exception();
  }
  handler_(signo);
  if (failed) std::rethrow_exception(failed);
}

}  // namespace acc::agent::daemon
