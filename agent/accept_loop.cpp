#include "agent/accept_loop.hpp"

#include "common/duration.hpp"
#include "common/log.hpp"

#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <utility>

namespace acc::agent {

namespace {

constexpr int kAcceptsATurn = 64;
constexpr Millis kAcceptPause{100};

/// Of one connection that ended while it waited, or of its network (accept(2)): the next may be
/// accepted.
bool is_of_one_connection(int error) {
  switch (error) {
    case ECONNABORTED:
    case EINTR:
    case ENETDOWN:
    case EPROTO:
    case ENOPROTOOPT:
    case EHOSTDOWN:
    case ENONET:
    case EHOSTUNREACH:
    case ENETUNREACH:
      return true;
    default:
      return false;
  }
}

}  // namespace

AcceptLoop::AcceptLoop(boost::asio::io_context& io, std::string shortage, Take take)
    : listener_{io}, pause_{io}, shortage_{std::move(shortage)}, take_{std::move(take)} {}

AcceptLoop::~AcceptLoop() = default;

Result<void> AcceptLoop::start(UniqueFd listening) {
  close();
  boost::system::error_code refused;
  listener_.assign(listening.get(), refused);
  if (refused) return system_error(refused.value(), "wait for connections");
  static_cast<void>(listening.release());
  wait();
  return {};
}

void AcceptLoop::close() {
  boost::system::error_code ignored;
  listener_.close(ignored);
  pause_.cancel();
  is_waiting_ = is_paused_ = false;
  ++start_;
}

void AcceptLoop::wait() {
  if (is_waiting_) return;
  listener_.async_wait(boost::asio::posix::stream_descriptor::wait_read,
                       alive_.bind([this, start = start_](boost::system::error_code error) {
                         if (start != start_) return;
                         is_waiting_ = false;
                         if (!error) take_turn();
                       }));
  is_waiting_ = true;  // not before: without memory no wait begins
}

void AcceptLoop::take_turn() {
  const auto go_on = [this, start = start_] {
    if (start == start_ && !is_paused_) wait();
  };
  try {
    accept_waiting();
  } catch (...) {
    go_on();
    throw;
  }
  go_on();
}

void AcceptLoop::accept_waiting() {
  const auto start = start_;
  for (int i = 0; i < kAcceptsATurn && is_open(); ++i) {
    UniqueFd fd{
        ::accept4(listener_.native_handle(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK)};
    if (fd) {
      has_told_ = false;
      take_(std::move(fd));
      if (start != start_) return;
      continue;
    }
    if (is_of_one_connection(errno)) continue;
    if (errno != EAGAIN && errno != EWOULDBLOCK) pause(errno);
    return;
  }
}

// No descriptor or memory is left: the loop would spin on what it can't take.
void AcceptLoop::pause(int error) {
  if (!std::exchange(has_told_, true)) log::warn(shortage_, {{"why", std::strerror(error)}});
  pause_.expires_after(kAcceptPause);
  pause_.async_wait(alive_.bind([this, start = start_](boost::system::error_code cancelled) {
    if (cancelled || start != start_) return;
    is_paused_ = false;
    wait();
  }));
  is_paused_ = true;
}

}  // namespace acc::agent
