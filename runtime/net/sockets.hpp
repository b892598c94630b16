#pragma once

#include "common/duration.hpp"
#include "common/error.hpp"
#include "common/unique_fd.hpp"

#include <sys/socket.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

/// Blocking sockets with deadlines. Descriptors are non-blocking underneath: no call here waits
/// beyond its deadline, whatever the peer does.
namespace acc::runtime {

using Deadline = std::chrono::steady_clock::time_point;  ///< max(): for ever

/// Milliseconds for poll: rounded up, at least 0; -1 for ever.
[[nodiscard]] int poll_time(Deadline deadline) noexcept;

[[nodiscard]] inline std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span{text.data(), text.size()});
}

/// An address of the network, or an abstract one of this machine ("@name", which leaves no file).
class SocketAddress {
 public:
  SocketAddress() = default;
  SocketAddress(const sockaddr* address, socklen_t size);
  /// At most 107 bytes; "": the kernel chooses an unused name.
  [[nodiscard]] static SocketAddress abstract(std::string_view name);
  /// nothing: not a numeric address.
  [[nodiscard]] static std::optional<SocketAddress> numeric(const std::string& host,
                                                            std::uint16_t port);

  [[nodiscard]] const sockaddr* get() const noexcept {
    return reinterpret_cast<const sockaddr*>(&storage_);
  }
  [[nodiscard]] socklen_t size() const noexcept { return size_; }
  [[nodiscard]] int family() const noexcept { return storage_.ss_family; }
  [[nodiscard]] bool is_abstract() const noexcept { return family() == AF_UNIX; }
  [[nodiscard]] bool is_loopback() const noexcept;
  [[nodiscard]] std::uint16_t port() const noexcept;
  void set_port(std::uint16_t port) noexcept;
  [[nodiscard]] std::string host() const;  ///< "10.0.0.1", "fd77::1"; abstract: its name
  [[nodiscard]] std::string text() const;  ///< "10.0.0.1:29500", "[::1]:80", "@name"

 private:
  sockaddr_storage storage_{};
  socklen_t size_ = 0;
};

/// The addresses of a name, in the resolver's order.
[[nodiscard]] Result<std::vector<SocketAddress>> resolve(const std::string& host,
                                                         std::uint16_t port, Deadline deadline);

/// Local and remote address of a socket.
[[nodiscard]] SocketAddress local_address(int fd);
[[nodiscard]] SocketAddress peer_address(int fd);
/// Is it an address of this host?
[[nodiscard]] bool is_own_address(const SocketAddress& address);
/// Does the peer of this unix socket run as the same user?
[[nodiscard]] bool is_same_user(int fd);

[[nodiscard]] Result<UniqueFd> listen_at(const SocketAddress& address, int backlog);
/// not_found: no connection is waiting (any more); else this process can't accept connections (no
/// descriptor is left, for example), and the listener stays readable.
[[nodiscard]] Result<UniqueFd> accept_from(int listener);
/// One attempt.
[[nodiscard]] Result<UniqueFd> connect_to(const SocketAddress& address, Deadline deadline);

/// Enables keep-alive: the kernel notices within minutes that the peer's host is gone. No effect on
/// unix sockets.
void keep_alive(int fd) noexcept;

/// Before TCP connections are closed: stops sending and discards what arrives until the peers'
/// systems have acknowledged all that was sent, or `deadline`. A close with unread bytes resets the
/// connection, and the last message to the peer, why this side leaves, would be lost. Descriptors
/// of -1 are skipped.
void drain(std::span<const int> fds, Deadline deadline) noexcept;

/// Waits for `events`, or the end of the connection.
[[nodiscard]] Result<void> await(int fd, short events, Deadline deadline);
[[nodiscard]] Result<void> send_all(int fd, std::span<const std::byte> bytes, Deadline deadline);
/// not_found: the peer closed.
[[nodiscard]] Result<void> receive_all(int fd, std::span<std::byte> bytes, Deadline deadline);

/// Sends `bytes` (at least one) over a unix socket, and with them a descriptor (-1: none).
[[nodiscard]] Result<void> send_with(int fd, std::span<const std::byte> bytes, int descriptor,
                                     Deadline deadline);
/// Receives exactly `bytes`, and the descriptor sent with them, if any.
[[nodiscard]] Result<UniqueFd> receive_with(int fd, std::span<std::byte> bytes, Deadline deadline);

}  // namespace acc::runtime
