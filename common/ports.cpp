#include "common/ports.hpp"

#include "common/unique_fd.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <string>

namespace acc {

namespace {

// Rank 0's store listens on [::] where IPv6 exists, else on 0.0.0.0: a bind there meets every
// listener.
std::uint16_t bind_any(std::uint16_t port) {
  for (const int family : {AF_INET6, AF_INET}) {
    const UniqueFd fd{::socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0)};
    if (!fd) continue;
    const int on = 1;
    ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    sockaddr_in6 six{};
    sockaddr_in four{};
    six.sin6_family = AF_INET6;
    six.sin6_port = htons(port);
    four.sin_family = AF_INET;
    four.sin_port = htons(port);
    sockaddr* const address =
        family == AF_INET6 ? reinterpret_cast<sockaddr*>(&six) : reinterpret_cast<sockaddr*>(&four);
    socklen_t length = family == AF_INET6 ? sizeof six : sizeof four;
    if (::bind(fd.get(), address, length) != 0 || ::listen(fd.get(), 1) != 0) {
      if (family == AF_INET6 && port == 0) continue;
      if (family == AF_INET6 && errno == EADDRNOTAVAIL)
        continue;  // IPv6 is built in but switched off
      return 0;
    }
    ::getsockname(fd.get(), address, &length);
    return ntohs(family == AF_INET6 ? six.sin6_port : four.sin_port);
  }
  return 0;
}

}  // namespace

UniqueFd reserve_name(std::string_view name) {
  UniqueFd fd{::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0)};
  // An abstract name: it belongs to the network namespace, as a port does, and ends with its owner.
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  constexpr int kMost = 80;
  const int length =
      std::snprintf(address.sun_path + 1, sizeof address.sun_path - 1, "acc-launch/%.*s",
                    static_cast<int>(std::min<std::size_t>(name.size(), kMost)), name.data());
  const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 +
                                           static_cast<std::size_t>(length));
  if (::bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), size) != 0) fd.reset();
  return fd;
}

UniqueFd reserve_port(std::uint16_t port) { return reserve_name("port/" + std::to_string(port)); }

bool port_is_free(std::uint16_t port) {
  return port != 0 && bind_any(port) == port && static_cast<bool>(reserve_port(port));
}

std::uint16_t pick_free_port() { return bind_any(0); }

}  // namespace acc
