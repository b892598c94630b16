#pragma once

#include "common/unique_fd.hpp"

#include <sys/socket.h>
#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>

namespace acc::rendezvous {

/// The user that holds the other end of a connection within this machine, from the kernel
/// (sock_diag(7)). Loopback needs no secret because only the own user is admitted.
class SocketUsers {
 public:
  enum class Known {
    yes,
    gone,         ///< the other end is closed already: whose it was is unknown
    unavailable,  ///< this kernel or sandbox doesn't report it
  };
  struct Answer {
    Known known = Known::unavailable;
    uid_t user = 0;
  };
  /// Which of the peer's sockets to query. A listening socket hasn't accepted the connection when
  /// connect() returns: until then the connection itself has no user.
  enum class Side { connects, listens };
  /// @param socket  connected TCP whose other end is in the same network namespace. One query to
  /// the kernel, some microseconds.
  [[nodiscard]] Answer at_other_end(int socket, Side other);

  /// Why the peer may not connect: it belongs to another user. Root may connect to every process,
  /// and an unknown user is admitted. Nothing: it may connect.
  [[nodiscard]] std::optional<std::string> objection(int socket, Side other) {
    return objection(at_other_end(socket, other));
  }
  [[nodiscard]] static std::optional<std::string> objection(const Answer& other);
  /// Why a listener, by the same rule, will not let us in: root's takes root alone. Nothing: it
  /// may.
  [[nodiscard]] std::optional<std::string> expected_refusal(int socket);

  /// Whether a process of this network namespace listens at the port on loopback, alone or with all
  /// addresses. False where this kernel doesn't report it.
  [[nodiscard]] bool is_listening(std::uint16_t port);

 private:
  struct End;
  static End end_of(const sockaddr_storage& storage);
  /// Who holds the socket at `end`. @param connected_to  null: it listens
  Answer ask(const End& end, const End* connected_to);
  /// Whether this kernel finds no sockets at all.
  bool is_blind();

  UniqueFd kernel_;
  std::optional<bool> is_blind_;
};

}  // namespace acc::rendezvous
