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

/// Of the network, or of this machine ("@name", which leaves nothing on a disk).
class SocketAddress {
 public:
  SocketAddress() = default;
  SocketAddress(const sockaddr* address, socklen_t size);
  /// "" lets the kernel choose a name that nobody has. At most 107 bytes.
  [[nodiscard]] static SocketAddress abstract(std::string_view name);
  /// nothing: not an address in numbers.
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

/// The addresses of a name, in the order of the resolver's preference.
[[nodiscard]] Result<std::vector<SocketAddress>> resolve(const std::string& host,
                                                         std::uint16_t port, Deadline deadline);

/// Where a descriptor is bound, and where its peer is.
[[nodiscard]] SocketAddress local_address(int fd);
[[nodiscard]] SocketAddress peer_address(int fd);
/// Is it one of this host's?
[[nodiscard]] bool is_own_address(const SocketAddress& address);
/// Is the process at the other end of this unix socket run by our user?
[[nodiscard]] bool is_same_user(int fd);

[[nodiscard]] Result<UniqueFd> listen_at(const SocketAddress& address, int backlog);
/// not_found: nobody is there any more, as a stranger's hurry is no error of ours; else this
/// process can't take connections (no descriptor is left, say), and the listener stays readable.
[[nodiscard]] Result<UniqueFd> accept_from(int listener);
/// One attempt.
[[nodiscard]] Result<UniqueFd> connect_to(const SocketAddress& address, Deadline deadline);

/// Lets the kernel notice, within minutes, that the peer's host is gone. Nothing for unix sockets.
void keep_alive(int fd) noexcept;

/// For TCP connections that are about to be closed. A close while unread bytes are there, or come
/// later, resets the connection, and with it go the bytes that are still on their way to the peer:
/// the word on why we leave. So: no more is sent, what arrives is discarded, until the peers'
/// systems have all that was sent, or `deadline`. Descriptors of -1 are left out.
void drain(std::span<const int> fds, Deadline deadline) noexcept;

/// Waits for `events` (or an end) at one descriptor.
[[nodiscard]] Result<void> await(int fd, short events, Deadline deadline);
[[nodiscard]] Result<void> send_all(int fd, std::span<const std::byte> bytes, Deadline deadline);
/// not_found: the peer closed.
[[nodiscard]] Result<void> receive_all(int fd, std::span<std::byte> bytes, Deadline deadline);

/// `bytes` (at least one) and with them a descriptor (-1: none), over a unix socket.
[[nodiscard]] Result<void> send_with(int fd, std::span<const std::byte> bytes, int descriptor,
                                     Deadline deadline);
/// Exactly `bytes`, and the descriptor that came with them if one did.
[[nodiscard]] Result<UniqueFd> receive_with(int fd, std::span<std::byte> bytes, Deadline deadline);

}  // namespace acc::runtime
