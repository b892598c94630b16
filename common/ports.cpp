#include "common/ports.hpp"

#include "common/text.hpp"
#include "common/unique_fd.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <pwd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <optional>
#include <sstream>
#include <string>

namespace acc {

namespace {

// Rank 0's store listens on [::] where IPv6 exists, else on 0.0.0.0: binding there conflicts with
// every listener.
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
    // Of a given port no probe listens: two sockets with SO_REUSEADDR may be bound at a time, and
    // two probes of it don't meet.
    if (::bind(fd.get(), address, length) != 0 || (port == 0 && ::listen(fd.get(), 1) != 0)) {
      if (family == AF_INET6 && port == 0) continue;
      if (family == AF_INET6 && errno == EADDRNOTAVAIL)
        continue;  // IPv6 is compiled in but disabled
      return 0;
    }
    ::getsockname(fd.get(), address, &length);
    return ntohs(family == AF_INET6 ? six.sin6_port : four.sin_port);
  }
  return 0;
}

struct AbstractName {
  sockaddr_un address{};
  socklen_t size = 0;
  explicit AbstractName(std::string_view name) {
    address.sun_family = AF_UNIX;
    constexpr int kMost = 80;
    const int length =
        std::snprintf(address.sun_path + 1, sizeof address.sun_path - 1, "acc-launch/%.*s",
                      static_cast<int>(std::min<std::size_t>(name.size(), kMost)), name.data());
    size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 +
                                  static_cast<std::size_t>(length));
  }
  [[nodiscard]] const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&address); }
};

std::string name_of_port(std::uint16_t port) { return "port/" + std::to_string(port); }

UniqueFd unix_socket() {
  return UniqueFd{::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)};
}

/// Without binding it: a look that holds the name would be in the way of who reserves it.
bool is_reserved(std::string_view name) {
  const AbstractName at{name};
  const auto caller = unix_socket();
  return ::connect(caller.get(), at.get(), at.size) == 0 || errno == EAGAIN;  // full: never served
}

std::optional<uid_t> user_of_name(std::string_view name) {
  const AbstractName at{name};
  const auto fd = unix_socket();
  ucred peer{};
  socklen_t length = sizeof peer;
  if (::connect(fd.get(), at.get(), at.size) != 0 ||
      ::getsockopt(fd.get(), SOL_SOCKET, SO_PEERCRED, &peer, &length) != 0)
    return std::nullopt;
  return peer.uid;
}

// Lines of /proc/net/tcp: number, local address:port in hex, remote, state (0A: listens), queues,
// timer, retransmits, user.
std::optional<uid_t> user_of_listener(const char* table, std::uint16_t port) {
  char wanted[8];
  std::snprintf(wanted, sizeof wanted, ":%04X", unsigned{port});
  std::ifstream file{table};
  for (std::string line; std::getline(file, line);) {
    std::istringstream words{line};
    std::string number, local, remote, state, queues, timer, retransmits;
    uid_t user = 0;
    words >> number >> local >> remote >> state >> queues >> timer >> retransmits >> user;
    if (words && state == "0A" && local.ends_with(wanted)) return user;
  }
  return std::nullopt;
}

}  // namespace

UniqueFd reserve_name(std::string_view name) {
  // An abstract name: it belongs to the network namespace, as a port does, and ends with its owner.
  // It listens, though nobody is ever answered: so that others read whose it is (SO_PEERCRED).
  UniqueFd fd{::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)};
  const AbstractName at{name};
  if (::bind(fd.get(), at.get(), at.size) != 0 || ::listen(fd.get(), SOMAXCONN) != 0) {
    const int why = errno;
    fd.reset();
    errno = why;
  }
  return fd;
}

UniqueFd reserve_port(std::uint16_t port) { return reserve_name(name_of_port(port)); }

std::string foreign_port_holder(std::uint16_t port) {
  auto user = user_of_listener("/proc/self/net/tcp6", port);
  if (!user) user = user_of_listener("/proc/self/net/tcp", port);
  if (!user) user = user_of_name(name_of_port(port));
  if (!user || *user == ::geteuid()) return {};
  const auto* entry = ::getpwuid(*user);
  return "user " + std::to_string(*user) +
         (entry != nullptr ? " (" + printable(entry->pw_name, 32) + ")" : "");
}

static std::uint16_t first_port_for_all() {
  std::uint16_t first = 1024;
  std::ifstream{"/proc/sys/net/ipv4/ip_unprivileged_port_start"} >> first;
  return first;
}

std::string why_port_taken(std::uint16_t port) {
  if (bind_any(port) == 0 && errno == EACCES) {
    const auto first = first_port_for_all();
    return port < first ? "needs root's rights, as all below " + std::to_string(first)
                        : "can't be used: " + std::string{std::strerror(EACCES)};
  }
  const auto holder = foreign_port_holder(port);
  return "is already in use" + (holder.empty() ? holder : " by " + holder);
}

std::string port_in_use(std::uint16_t port) {
  return "port " + std::to_string(port) + " " + why_port_taken(port);
}

bool port_is_free(std::uint16_t port) {
  return port != 0 && bind_any(port) == port && !is_reserved(name_of_port(port));
}

std::uint16_t pick_free_port() { return bind_any(0); }

}  // namespace acc
