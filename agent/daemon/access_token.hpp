#pragma once

#include "common/error.hpp"
#include "rendezvous/private_file.hpp"

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace acc::agent::daemon {

/// What a token is for. One kind is never taken for another.
enum class TokenKind : char {
  bearer = 'b',  ///< Authorization: Bearer
  ticket = 't',  ///< in a link; worth one cookie, once, within a minute
  cookie = 'c',  ///< a browser's session
};

/// What a token says, and its signature proves.
struct TokenClaims {
  TokenKind kind = TokenKind::bearer;
  bool only_reads = false;
  uid_t uid = 0;
  gid_t gid = 0;
  std::int64_t expires_s = 0;  ///< wall clock, since the epoch
  /// Of a ticket: when the session that it opens expires. Of a cookie: the user whose processes may
  /// send it, as the kernel tells. Of a bearer: 0.
  std::int64_t bound_to = 0;
  std::uint64_t nonce = 0;
  friend bool operator==(const TokenClaims&, const TokenClaims&) = default;
};

/// Makes and checks tokens: nothing is kept of those that were issued, but a signature with a key
/// of the daemon (HKDF-SHA256). Replacing the key makes all of them worthless.
class AccessTokens {
 public:
  explicit AccessTokens(std::string_view key) : key_{key} {}
  /// The key in `path`, mode 0600, made if it is missing. One that others can read is refused.
  static Result<AccessTokens> open(const std::string& path);

  [[nodiscard]] std::string sign(const TokenClaims& claims) const;

  struct Verdict {
    std::optional<TokenClaims> claims;  ///< nothing: refused
    bool is_forged = false;             ///< no token of this daemon, as against an expired one
    std::string why;
  };
  /// Total: any bytes get a verdict.
  [[nodiscard]] Verdict check(std::string_view token, TokenKind kind, std::int64_t now_s) const;

 private:
  [[nodiscard]] std::string signature(std::string_view signed_part) const;

  rendezvous::SecretBytes key_;
};

/// Tickets that were used, until they would have expired anyway. Bounded for each user; pure.
class UsedTickets {
 public:
  /// False: it was used before, or too many of its user are remembered.
  [[nodiscard]] bool use(const TokenClaims& ticket, std::int64_t now_s);

 private:
  std::map<std::pair<uid_t, std::uint64_t>, std::int64_t> expiry_;  ///< by user and nonce
};

}  // namespace acc::agent::daemon
