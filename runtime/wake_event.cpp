#include "runtime/wake_event.hpp"

#include <sys/socket.h>

#include <cerrno>

namespace acc::runtime {

WakeEvent::WakeEvent() noexcept {
  int pair[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) != 0) return;
  ours_ = KeptFd{UniqueFd{pair[0]}};
  theirs_ = KeptFd{UniqueFd{pair[1]}};
}

void WakeEvent::set() const noexcept {
  // Fails only when it is full, which means already set.
  if (theirs_.is_ours()) (void)::send(theirs_.get(), "", 1, MSG_NOSIGNAL | MSG_DONTWAIT);
}

int WakeEvent::poll(std::span<pollfd> waits, int timeout_ms) noexcept {
  if (!ours_.is_ours()) is_lost_ = true;
  const int longest = is_lost_ ? kLookEveryMs : kLongestWaitMs;
  if (timeout_ms < 0 || timeout_ms > longest) timeout_ms = longest;
  waits[0] = {fd(), POLLIN, 0};
  const int found = ::poll(waits.data(), waits.size(), timeout_ms);
  const int why = errno;
  if (found > 0 && waits[0].revents != 0) clear();
  errno = why;
  return found;
}

void WakeEvent::clear() noexcept {
  // After a wait of hours the number may be that of a socket of the program's.
  if (!ours_.is_ours()) {
    is_lost_ = true;
    return;
  }
  char bytes[64];
  ssize_t n = sizeof bytes;
  while (n == static_cast<ssize_t>(sizeof bytes))
    n = ::recv(ours_.get(), bytes, sizeof bytes, MSG_DONTWAIT);
  // The end of the stream: the program has closed the other end.
  if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR)) is_lost_ = true;
}

}  // namespace acc::runtime
