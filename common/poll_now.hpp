#pragma once

#include <poll.h>

namespace acc {

/// Whether this descriptor has one of these events (POLLIN, POLLOUT, POLLPRI), an error or a
/// hang-up right now. False for an invalid descriptor.
///
/// Asked again after each async_wait of Asio that is taken for a fact (a process has ended, a peer
/// is gone), before it is acted on: where several descriptors are ready in one turn of the event
/// loop and the handler of the first closes the second, a descriptor that is opened then gets the
/// second's event, and its wait completes with success (Boost 1.81; the loop's states are used
/// again, and the queued event isn't taken back). Who reads until EAGAIN needn't ask.
[[nodiscard]] inline bool is_ready(int fd, short events) {
  pollfd one{fd, events, 0};
  return ::poll(&one, 1, 0) == 1 && (one.revents & (events | POLLERR | POLLHUP)) != 0;
}

}  // namespace acc
