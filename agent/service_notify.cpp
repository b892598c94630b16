#include "agent/service_notify.hpp"

#include "common/text.hpp"

#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <time.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>

namespace acc::agent {

static std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : "";
}

ServiceNotifier::ServiceNotifier(pid_t main_pid) : address_{variable("NOTIFY_SOCKET")} {
  sockaddr_un limits{};
  if (address_.empty() || address_.size() >= sizeof limits.sun_path ||
      (address_[0] != '/' && address_[0] != '@'))
    return;
  socket_ = UniqueFd{::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0)};
  constexpr timeval kPatience{.tv_sec = 0, .tv_usec = 500'000};
  ::setsockopt(socket_.get(), SOL_SOCKET, SO_SNDTIMEO, &kPatience, sizeof kPatience);
  const auto micros = parse_number<std::uint64_t>(variable("WATCHDOG_USEC"));
  const auto pid = parse_number<pid_t>(variable("WATCHDOG_PID"));
  if (micros && *micros > 0 && (!pid || *pid == main_pid))
    watchdog_period_ = Millis{std::max<std::uint64_t>(*micros / 2000, 1)};
}

void ServiceNotifier::send(std::string_view state, Arrives arrives) const {
  if (!socket_) return;
  sockaddr_un to{};
  to.sun_family = AF_UNIX;
  std::memcpy(to.sun_path, address_.data(), address_.size());
  if (to.sun_path[0] == '@') to.sun_path[0] = '\0';  // the abstract name space
  const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + address_.size());
  // A lost status line does no harm, and a lost WATCHDOG=1 is followed by the next.
  const int waits = arrives == Arrives::must ? 0 : MSG_DONTWAIT;
  while (::sendto(socket_.get(), state.data(), state.size(), MSG_NOSIGNAL | waits,
                  reinterpret_cast<const sockaddr*>(&to), length) < 0 &&
         errno == EINTR) {
  }
}

void ServiceNotifier::reloading() const {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  const auto micros = std::int64_t{now.tv_sec} * 1'000'000 + now.tv_nsec / 1'000;
  send("RELOADING=1\nMONOTONIC_USEC=" + std::to_string(micros), Arrives::must);
}

}  // namespace acc::agent
