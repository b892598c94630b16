#pragma once

#include <sys/types.h>

#include <cstddef>
#include <map>

namespace acc::agent::daemon {

struct HttpLimits {
  std::size_t connections = 512;  ///< in all
  std::size_t connections_of_a_user = 256;
  std::size_t reserved = 32;          ///< of `connections`: for root and the daemon's own user
  std::size_t body_bytes = 32 << 20;  ///< of all requests that are being read or carried out
  std::size_t body_bytes_of_a_user = 8 << 20;
  std::size_t reply_bytes = 64 << 20;  ///< of all replies that their readers haven't taken
  std::size_t reply_bytes_of_a_user = 16 << 20;
};

/// Who holds how much of the server: connections, memory for bodies and for replies. Pure.
class ClientQuota {
 public:
  ClientQuota(HttpLimits limits, uid_t own) : limits_{limits}, own_{own} {}

  [[nodiscard]] bool take_connection(uid_t uid);
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

  HttpLimits limits_;
  uid_t own_;
  std::size_t connections_ = 0;
  std::size_t body_bytes_ = 0;
  std::size_t reply_bytes_ = 0;
  std::map<uid_t, Share> shares_;
};

}  // namespace acc::agent::daemon
