#pragma once

#include "agent/daemon/http_message.hpp"
#include "agent/daemon/peer_rules.hpp"
#include "common/duration.hpp"
#include "common/error.hpp"

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

/// What the door at a loopback port takes from browsers and other HTTP clients (pure).
namespace acc::agent::daemon {

/// "127.0.0.1:9180", "[::1]:9180", "localhost:9180" or "9180"; any other address is refused with
/// the reason.
[[nodiscard]] Result<NodeAddress> parse_loopback_address(std::string_view text);

/// Why the request is refused with any token: it names another host (a name of a foreign page that
/// was rebound to this address), or a page of another origin sends it. Status 0: nothing is wrong.
[[nodiscard]] HttpRefusal foreign_page(const HttpRequest& request);

/// Changes nothing: all that a token that only reads is good for.
[[nodiscard]] bool only_reads(const HttpRequest& request);

/// What a request brings to prove who asks; at most one counts, a header before a cookie.
struct Credentials {
  std::string_view bearer;
  std::string_view cookie;
  bool is_malformed = false;  ///< an Authorization that is no bearer token
};
[[nodiscard]] Credentials credentials_of(const HttpRequest& request, std::string_view cookie_name);
/// Of the link that a browser opens: the token of `/?token=…`.
[[nodiscard]] std::optional<std::string_view> ticket_of(const HttpRequest& request);

/// Limits wrong tokens of a source, the user at the other end of a connection: beyond some in a
/// minute nothing it sends is looked at until the minute is over.
class WrongTokens {
 public:
  [[nodiscard]] bool is_blocked(uid_t source, Instant now) const;
  /// Until then; for Retry-After.
  [[nodiscard]] Millis blocked_for(uid_t source, Instant now) const;
  /// True: the first of its minute, which the log gets.
  [[nodiscard]] bool failed(uid_t source, Instant now);

 private:
  struct Minute {
    Instant ends;
    std::uint32_t failures = 0;
  };
  std::map<uid_t, Minute> sources_;
};

/// Limits the log's lines about tokens that a user was given: any local user may ask for as many as
/// it likes, and would fill the disk.
class IssuedTokensLog {
 public:
  struct Verdict {
    bool is_logged = false;
    bool is_last = false;        ///< further ones of this minute aren't logged
    std::uint64_t left_out = 0;  ///< of this user's tokens, since its last line
  };
  [[nodiscard]] Verdict issued(uid_t user, Instant now);

 private:
  struct Minute {
    Instant ends;
    std::uint64_t tokens = 0;
  };
  std::map<uid_t, Minute> users_;
};

}  // namespace acc::agent::daemon
