#pragma once

#include "common/duration.hpp"

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

namespace acc::agent::daemon {

struct HttpLimits {
  std::size_t connections = 512;  ///< in all
  std::size_t connections_of_a_user = 256;
  std::size_t reserved = 32;          ///< of `connections`: for root and the daemon's own user
  std::size_t body_bytes = 32 << 20;  ///< of all requests that are being read or carried out
  std::size_t body_bytes_of_a_user = 8 << 20;
  std::size_t reply_bytes = 64 << 20;  ///< of all replies that their readers haven't taken
  std::size_t reply_bytes_of_a_user = 16 << 20;
  bool replaces = true;  ///< where no connection is left: one of who holds most
};

/// Of the port for browsers.
inline constexpr HttpLimits kLoopbackLimits{
    .connections = 256, .connections_of_a_user = 64, .reserved = 16};

struct HeldConnection {
  std::uint64_t number = 0;           ///< in the order of their arrival
  std::optional<Instant> idle_since;  ///< nothing: it has a request
  bool is_changing = false;           ///< the request may change something: it isn't broken off
};
/// The one of a user's connections that is ended for another user's: what is idle, for the longest
/// time first; else the newest, as an old one follows a job and a new one may be of a flood. Pure.
[[nodiscard]] std::optional<std::uint64_t> connection_to_end(
    const std::vector<HeldConnection>& held);

/// Who holds how much of the server: connections, memory for bodies and for replies. Pure.
class ClientQuota {
 public:
  ClientQuota(HttpLimits limits, uid_t own) : limits_{limits}, own_{own} {}

  [[nodiscard]] bool take_connection(uid_t uid);
  /// Who loses a connection to `uid`, for whom no place is left: the user who holds most, if that
  /// one still holds as many as `uid` afterwards; never an operator. Nothing: `uid` is refused.
  [[nodiscard]] std::optional<uid_t> loser_to(uid_t uid) const;
  void give_connection(uid_t uid);
  [[nodiscard]] bool take_body(uid_t uid, std::size_t bytes);
  void give_body(uid_t uid, std::size_t bytes);
  /// The first that waits for a user is granted at any size: a long list must reach its reader.
  [[nodiscard]] bool take_reply(uid_t uid, std::size_t bytes);
  void give_reply(uid_t uid, std::size_t bytes);
  [[nodiscard]] std::size_t connections() const { return connections_; }
  [[nodiscard]] std::size_t body_bytes() const { return body_bytes_; }

 private:
  struct Share {
    std::size_t connections = 0;
    std::size_t body_bytes = 0;
    std::size_t reply_bytes = 0;
  };
  void forget_empty(uid_t uid);
  [[nodiscard]] bool is_operator(uid_t uid) const { return uid == 0 || uid == own_; }

  HttpLimits limits_;
  uid_t own_;
  std::size_t connections_ = 0;
  std::size_t body_bytes_ = 0;
  std::size_t reply_bytes_ = 0;
  std::map<uid_t, Share> shares_;
};

}  // namespace acc::agent::daemon
