#include "runtime/net/sockets.hpp"

#include "common/unmapped_id.hpp"
#include "runtime/quiet_thread.hpp"

#include <arpa/inet.h>
#include <linux/sockios.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/un.h>

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <cstring>
#include <memory>
#include <mutex>
#include <thread>

namespace acc::runtime {

namespace {

using Clock = std::chrono::steady_clock;

acc::Error closed(const char* what) { return {Errc::not_found, what}; }

}  // namespace

int poll_time(Deadline deadline) noexcept {
  if (deadline == Deadline::max()) return -1;
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now());
  return static_cast<int>(std::clamp<std::int64_t>(left.count(), 0, 1'000'000'000));
}

// ---- addresses ----

SocketAddress::SocketAddress(const sockaddr* address, socklen_t size)
    : size_{std::min<socklen_t>(size, sizeof storage_)} {
  std::memcpy(&storage_, address, size_);
}

SocketAddress SocketAddress::abstract(std::string_view name) {
  sockaddr_un to{};
  to.sun_family = AF_UNIX;
  auto size = sizeof to.sun_family;  // without a name the kernel chooses one
  if (!name.empty()) {
    const auto length = std::min(name.size(), sizeof to.sun_path - 1);
    std::memcpy(to.sun_path + 1, name.data(), length);
    size = offsetof(sockaddr_un, sun_path) + 1 + length;
  }
  return {reinterpret_cast<const sockaddr*>(&to), static_cast<socklen_t>(size)};
}

std::optional<SocketAddress> SocketAddress::numeric(const std::string& host, std::uint16_t port) {
  sockaddr_in v4{};
  v4.sin_family = AF_INET;
  v4.sin_port = htons(port);
  if (::inet_pton(AF_INET, host.c_str(), &v4.sin_addr) == 1)
    return SocketAddress{reinterpret_cast<const sockaddr*>(&v4), sizeof v4};
  sockaddr_in6 v6{};
  v6.sin6_family = AF_INET6;
  v6.sin6_port = htons(port);
  if (::inet_pton(AF_INET6, host.c_str(), &v6.sin6_addr) == 1)
    return SocketAddress{reinterpret_cast<const sockaddr*>(&v6), sizeof v6};
  return std::nullopt;
}

bool SocketAddress::is_loopback() const noexcept {
  if (family() == AF_INET) {
    const auto& v4 = reinterpret_cast<const sockaddr_in&>(storage_);
    return (ntohl(v4.sin_addr.s_addr) >> 24) == 127;
  }
  if (family() != AF_INET6) return false;
  const auto& v6 = reinterpret_cast<const sockaddr_in6&>(storage_);
  if (IN6_IS_ADDR_V4MAPPED(&v6.sin6_addr)) return v6.sin6_addr.s6_addr[12] == 127;
  return IN6_IS_ADDR_LOOPBACK(&v6.sin6_addr);
}

std::uint16_t SocketAddress::port() const noexcept {
  if (family() == AF_INET) return ntohs(reinterpret_cast<const sockaddr_in&>(storage_).sin_port);
  if (family() == AF_INET6) return ntohs(reinterpret_cast<const sockaddr_in6&>(storage_).sin6_port);
  return 0;
}

void SocketAddress::set_port(std::uint16_t port) noexcept {
  if (family() == AF_INET) reinterpret_cast<sockaddr_in&>(storage_).sin_port = htons(port);
  if (family() == AF_INET6) reinterpret_cast<sockaddr_in6&>(storage_).sin6_port = htons(port);
}

std::string SocketAddress::host() const {
  if (is_abstract()) {
    const auto* path = reinterpret_cast<const sockaddr_un&>(storage_).sun_path;
    const auto used = size_ - offsetof(sockaddr_un, sun_path);
    if (size_ <= offsetof(sockaddr_un, sun_path) + 1) return {};
    return {path + 1, used - 1};
  }
  char text[INET6_ADDRSTRLEN] = {};
  const void* at = &reinterpret_cast<const sockaddr_in&>(storage_).sin_addr;
  if (family() == AF_INET6) at = &reinterpret_cast<const sockaddr_in6&>(storage_).sin6_addr;
  if (::inet_ntop(family(), at, text, sizeof text) == nullptr) return "?";
  return text;
}

std::string SocketAddress::text() const {
  if (is_abstract()) return "@" + host();
  const auto name = family() == AF_INET6 ? "[" + host() + "]" : host();
  return name + ":" + std::to_string(port());
}

namespace {

Result<std::vector<SocketAddress>> look_up(const std::string& host, std::uint16_t port) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* list = nullptr;
  const int failed = ::getaddrinfo(host.c_str(), nullptr, &hints, &list);
  if (failed != 0)
    return acc::Error{Errc::not_found, "look up '" + host + "': " + ::gai_strerror(failed)};
  std::vector<SocketAddress> found;
  for (const auto* at = list; at != nullptr; at = at->ai_next) {
    found.emplace_back(at->ai_addr, at->ai_addrlen);
    found.back().set_port(port);
  }
  ::freeaddrinfo(list);
  return found;
}

}  // namespace

Result<std::vector<SocketAddress>> resolve(const std::string& host, std::uint16_t port,
                                           Deadline deadline) {
  if (const auto address = SocketAddress::numeric(host, port)) return std::vector{*address};
  // The resolver has no deadline (14.6 s with a dead server): its thread may outlive the call.
  struct Looking {
    std::mutex mutex;
    std::condition_variable done;
    std::optional<Result<std::vector<SocketAddress>>> result;
  };
  auto looking = std::make_shared<Looking>();
  quiet_thread([looking, host, port] {
    auto found = look_up(host, port);
    const std::lock_guard lock{looking->mutex};
    looking->result = std::move(found);
    looking->done.notify_all();
  }).detach();
  std::unique_lock lock{looking->mutex};
  const auto there = [&] { return looking->result.has_value(); };
  if (deadline == Deadline::max())
    looking->done.wait(lock, there);
  else if (!looking->done.wait_until(lock, deadline, there))
    return acc::Error{Errc::timed_out, "look up '" + host + "': no answer from the resolver"};
  return *std::move(looking->result);
}

SocketAddress local_address(int fd) {
  sockaddr_storage at{};
  socklen_t size = sizeof at;
  if (::getsockname(fd, reinterpret_cast<sockaddr*>(&at), &size) != 0) return {};
  return {reinterpret_cast<const sockaddr*>(&at), size};
}

SocketAddress peer_address(int fd) {
  sockaddr_storage at{};
  socklen_t size = sizeof at;
  if (::getpeername(fd, reinterpret_cast<sockaddr*>(&at), &size) != 0) return {};
  return {reinterpret_cast<const sockaddr*>(&at), size};
}

bool is_own_address(const SocketAddress& address) {
  const UniqueFd fd{::socket(address.family(), SOCK_DGRAM | SOCK_CLOEXEC, 0)};
  // Whatever else fails says nothing about the address.
  return !fd || ::bind(fd.get(), address.get(), address.size()) == 0 || errno != EADDRNOTAVAIL;
}

bool is_same_user(int fd) {
  ucred peer{};
  socklen_t size = sizeof peer;
  return ::getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 &&
         is_own_user(peer.uid, peer.pid);
}

// ---- connections ----

Result<UniqueFd> listen_at(const SocketAddress& address, int backlog) {
  const auto attempted = [&] { return "listen at " + address.text(); };
  UniqueFd fd{::socket(address.family(), SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)};
  if (!fd) return system_error(errno, attempted());
  const int on = 1, off = 0;
  if (!address.is_abstract()) ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  // "::" accepts IPv4 as well, whatever net.ipv6.bindv6only is.
  if (address.family() == AF_INET6)
    ::setsockopt(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
  if (::bind(fd.get(), address.get(), address.size()) != 0 || ::listen(fd.get(), backlog) != 0)
    return system_error(errno, attempted());
  return fd;
}

Result<UniqueFd> accept_from(int listener) {
  UniqueFd fd{::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK)};
  if (fd) return fd;
  const int errnum = errno;
  const bool is_exhausted =
      errnum == EMFILE || errnum == ENFILE || errnum == ENOBUFS || errnum == ENOMEM;
  // The kernel allocates the descriptor before it looks for a connection.
  pollfd waiting{listener, POLLIN, 0};
  if (is_exhausted && ::poll(&waiting, 1, 0) > 0)
    return system_error(errnum, "accept a connection");
  return acc::Error{Errc::not_found, "no connection is waiting"};
}

Result<UniqueFd> connect_to(const SocketAddress& address, Deadline deadline) {
  const auto attempted = [&] { return "connect to " + address.text(); };
  // Connecting to an abstract name is refused or waits for room in the backlog, which poll doesn't
  // report: it blocks in connect, which SO_SNDTIMEO limits.
  const int blocking = address.is_abstract() ? 0 : SOCK_NONBLOCK;
  UniqueFd fd{::socket(address.family(), SOCK_STREAM | SOCK_CLOEXEC | blocking, 0)};
  if (!fd) return system_error(errno, attempted());
  if (address.is_abstract()) {
    const int left = poll_time(deadline);
    timeval limit{left / 1000, (left % 1000) * 1000 + 1};
    if (left >= 0) ::setsockopt(fd.get(), SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
  } else {
    const int on = 1;
    ::setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  }
  if (::connect(fd.get(), address.get(), address.size()) == 0) return fd;
  if (errno != EINPROGRESS) return system_error(errno == EAGAIN ? ETIMEDOUT : errno, attempted());
  if (auto ready = await(fd.get(), POLLOUT, deadline); !ready)
    return acc::Error{ready.error().code, attempted() + ": no answer"};
  int failed = 0;
  socklen_t size = sizeof failed;
  ::getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &failed, &size);
  if (failed != 0) return system_error(failed, attempted());
  // With no listener at a port of the ephemeral range, a socket can connect to itself.
  if (local_address(fd.get()).text() == address.text())
    return system_error(ECONNREFUSED, attempted());
  return fd;
}

void keep_alive(int fd) noexcept {
  const int on = 1, idle = 60, interval = 20, probes = 6;
  if (::setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on) != 0) return;
  ::setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof idle);
  ::setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval, sizeof interval);
  ::setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof probes);
}

namespace {

/// @return true: nothing left to wait for
bool drain_once(int fd) noexcept {
  char chunk[16 * 1024];
  for (;;) {
    const auto n = ::recv(fd, chunk, sizeof chunk, MSG_DONTWAIT);
    if (n > 0 || (n < 0 && errno == EINTR)) continue;
    if (n == 0 || errno != EAGAIN) return true;  // the peer closed as well
    int unsent = 0;
    return ::ioctl(fd, SIOCOUTQ, &unsent) != 0 || unsent == 0;
  }
}

}  // namespace

void drain(std::span<const int> fds, Deadline deadline) noexcept {
  constexpr int kLookEveryMs = 2;  // no event says that the peer's system has acknowledged
  for (const int fd : fds) ::shutdown(fd, SHUT_WR);
  for (;;) {
    bool all = true;
    for (const int fd : fds) all = (fd < 0 || drain_once(fd)) && all;
    if (all || Clock::now() >= deadline) return;
    ::poll(nullptr, 0, kLookEveryMs);
  }
}

// ---- bytes ----

Result<void> await(int fd, short events, Deadline deadline) {
  for (;;) {
    pollfd wait{fd, events, 0};
    const int ready = ::poll(&wait, 1, poll_time(deadline));
    if (ready > 0) return {};
    if (ready == 0) return acc::Error{Errc::timed_out, "no answer in time"};
    if (errno != EINTR) return system_error(errno, "wait for a peer");
  }
}

Result<void> send_all(int fd, std::span<const std::byte> bytes, Deadline deadline) {
  return send_with(fd, bytes, -1, deadline);
}

Result<void> receive_all(int fd, std::span<std::byte> bytes, Deadline deadline) {
  while (!bytes.empty()) {
    const auto n = ::recv(fd, bytes.data(), bytes.size(), MSG_DONTWAIT);
    if (n > 0) {
      bytes = bytes.subspan(static_cast<std::size_t>(n));
    } else if (n == 0) {
      return closed("the peer closed the connection");
    } else if (errno == EAGAIN) {
      if (auto ready = await(fd, POLLIN, deadline); !ready) return ready;
    } else if (errno != EINTR) {
      return system_error(errno, "receive from a peer");
    }
  }
  return {};
}

Result<void> send_with(int fd, std::span<const std::byte> bytes, int descriptor,
                       Deadline deadline) {
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  while (!bytes.empty()) {
    iovec part{const_cast<std::byte*>(bytes.data()), bytes.size()};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    if (descriptor >= 0) {
      message.msg_control = control;
      message.msg_controllen = sizeof control;
      auto* header = CMSG_FIRSTHDR(&message);
      header->cmsg_level = SOL_SOCKET;
      header->cmsg_type = SCM_RIGHTS;
      header->cmsg_len = CMSG_LEN(sizeof(int));
      std::memcpy(CMSG_DATA(header), &descriptor, sizeof descriptor);
    }
    const auto n = ::sendmsg(fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n >= 0) {
      bytes = bytes.subspan(static_cast<std::size_t>(n));
      descriptor = -1;  // sent with the first byte
    } else if (errno == EAGAIN) {
      if (auto ready = await(fd, POLLOUT, deadline); !ready) return ready;
    } else if (errno == EPIPE || errno == ECONNRESET) {
      return closed("the peer closed the connection");
    } else if (errno != EINTR) {
      return system_error(errno, "send to a peer");
    }
  }
  return {};
}

Result<UniqueFd> receive_with(int fd, std::span<std::byte> bytes, Deadline deadline) {
  UniqueFd received;
  while (!bytes.empty()) {
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
    iovec part{bytes.data(), bytes.size()};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    const auto n = ::recvmsg(fd, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (n > 0) {
      bytes = bytes.subspan(static_cast<std::size_t>(n));
      const auto* header = CMSG_FIRSTHDR(&message);
      if (header != nullptr && header->cmsg_level == SOL_SOCKET &&
          header->cmsg_type == SCM_RIGHTS && header->cmsg_len == CMSG_LEN(sizeof(int))) {
        int descriptor = -1;
        std::memcpy(&descriptor, CMSG_DATA(header), sizeof descriptor);
        received.reset(descriptor);
      }
    } else if (n == 0 || errno == ECONNRESET) {
      return closed("the peer closed the connection");
    } else if (errno == EAGAIN) {
      if (auto ready = await(fd, POLLIN, deadline); !ready) return ready.error();
    } else if (errno != EINTR) {
      return system_error(errno, "receive from a peer");
    }
  }
  return received;
}

}  // namespace acc::runtime
