#pragma once

#include "agent/daemon/jobs.hpp"
#include "agent/daemon/token_issuer.hpp"

#include <optional>
#include <string>
#include <string_view>
#include <vector>

/// The bodies of requests. Reading is total: any bytes give a value or all that is wrong with them.
namespace acc::agent::daemon {

/// `complaints` empty: `value` is what was sent.
template <class T>
struct Decoded {
  T value{};
  std::vector<std::string> complaints;
  [[nodiscard]] bool is_right() const { return complaints.empty(); }
};

[[nodiscard]] Decoded<Submission> decode_submission(std::string_view body);
/// `{"grace_s": 5}`, or nothing
[[nodiscard]] Decoded<std::optional<std::uint32_t>> decode_stop(std::string_view body);
/// `{"signal": "SIGUSR1"}`: its number
[[nodiscard]] Decoded<int> decode_signal(std::string_view body);
/// `{"reason": "new disk"}`
[[nodiscard]] Decoded<std::string> decode_drain(std::string_view body);
/// `{"read_only": true, "expires_s": 3600, "browser": false}`, or nothing
[[nodiscard]] Decoded<TokenWish> decode_token_wish(std::string_view body);

/// The keys that a body may have, for the test that holds the description against them.
struct BodyKeys {
  std::string_view schema;  ///< in configs/openapi/acc-agent.json
  std::vector<std::string_view> keys;
};
[[nodiscard]] std::vector<BodyKeys> body_keys();

}  // namespace acc::agent::daemon
