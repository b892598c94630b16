#pragma once

#include "agent/daemon/jobs.hpp"
#include "common/error.hpp"

#include <cstdint>
#include <string>

namespace acc::agent::daemon {

/// What a caller of POST /v1/token asks for; the token is of its own uid.
struct TokenWish {
  bool only_reads = false;
  bool for_browser = false;  ///< a link that logs a browser in once, in place of a token
  std::uint32_t expires_s = 12 * 3600;
};

struct IssuedToken {
  std::string token;
  std::string url;  ///< of the door; with for_browser the link
  bool only_reads = false;
  std::int64_t expires_ms = 0;  ///< of the token, or of the browser's session
};

/// Tokens for the door at a loopback port (docs/decisions/0039-loopback-door.md).
class TokenIssuer {
 public:
  virtual ~TokenIssuer() = default;
  /// unavailable: this daemon has no such door.
  [[nodiscard]] virtual Result<IssuedToken> issue(const Principal& who, const TokenWish& wish) = 0;
};

}  // namespace acc::agent::daemon
