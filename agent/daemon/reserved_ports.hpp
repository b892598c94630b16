#pragma once

#include "agent/daemon/request_shares.hpp"
#include "common/alive.hpp"
#include "common/duration.hpp"

#include <boost/asio/ip/tcp.hpp>
#include <boost/system/error_code.hpp>

#include <map>
#include <memory>
#include <string>

namespace acc::agent::daemon {

/// Source ports below 1024, which root alone may use: the daemon at the other end tells by one that
/// what connects isn't another user of this host. NFS and other programs of root's need them too,
/// and some networks drop what comes from them: few are used, and only where others failed.
class ReservedPorts {
 public:
  ReservedPorts() = default;
  ReservedPorts(const ReservedPorts&) = delete;
  ReservedPorts& operator=(const ReservedPorts&) = delete;

  /// Held while a connection from such a port lasts; may outlive this object. Streams, which last,
  /// take half of them at most. Null: there are enough, or this process may use none.
  using Share = std::shared_ptr<void>;
  [[nodiscard]] Share take(RequestKind kind);
  /// Whether take() would give one now.
  [[nodiscard]] bool has_free(RequestKind kind);

  /// An address took a connection from such a port after it had taken none from another one.
  void note_crowded(const std::string& address);
  [[nodiscard]] bool is_crowded(const std::string& address) const;

 private:
  [[nodiscard]] bool are_permitted();

  int taken_ = 0;
  int taken_for_streams_ = 0;
  enum class Permission : std::uint8_t { unknown, yes, no };
  Permission permission_ = Permission::unknown;
  std::map<std::string, Instant> crowded_;  ///< until then
  Alive alive_;
};

/// Binds a socket to one of them. No port is looked for beforehand: one from which a connection to
/// the same address exists is told only by connecting (EADDRNOTAVAIL), so that the caller tries
/// again with another socket.
[[nodiscard]] boost::system::error_code bind_reserved_port(int fd, bool is_v6);

}  // namespace acc::agent::daemon
