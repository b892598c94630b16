#pragma once

#include "agent/daemon/http_message.hpp"
#include "common/error.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

/// What daemons of a cluster say to each other, and what they refuse (pure).
namespace acc::agent::daemon {

inline constexpr std::uint16_t kDefaultPeerPort = 29700;
/// Of the connections between daemons, in the place of a job's name in the TLS handshake.
inline constexpr std::string_view kPeerJob = "acc-agent";

/// Asks a daemon who it is: it answers with these headers, as it does to all requests of others.
inline constexpr std::string_view kIdentityTarget = "/v1/identity";
inline constexpr std::string_view kIdentityHeader = "X-Acc-Identity";
inline constexpr std::string_view kNodeNameHeader = "X-Acc-Node";

/// The codes of a request that isn't carried out as there are too many: of the node that was asked,
/// which is there, and of the one that would have asked it.
inline constexpr std::string_view kNodeFull = "node_full";
inline constexpr std::string_view kTooManyHere = "exhausted";

struct NodeAddress {
  std::string host;
  std::uint16_t port = 0;  ///< 0: not named
  friend bool operator==(const NodeAddress&, const NodeAddress&) = default;
};
/// "node1", "node1:29700", "10.0.0.7", "fd00::1", "[fd00::1]:29700"; nothing for anything else.
[[nodiscard]] std::optional<NodeAddress> parse_node_address(std::string_view text);
/// "[ADDRESS:]PORT" or "ADDRESS"; numeric. Without an address: all of this host.
[[nodiscard]] Result<NodeAddress> parse_listen_address(std::string_view text);

/// The user that another daemon vouches for: the one X-Acc-User of a request. A number is refused:
/// it means another user on another node.
struct VouchedUser {
  std::string name;
  HttpRefusal refusal{};  ///< status 0: none
};
[[nodiscard]] VouchedUser vouched_user(const HttpRequest& request);
/// Empty, or why no daemon may be asked in this name.
[[nodiscard]] std::string user_name_complaint(std::string_view name);

/// "/v1/nodes/b:1/v1/jobs?x=1": "b:1" and "/v1/jobs?x=1".
struct NodeTarget {
  std::string node;
  std::string rest;
};
[[nodiscard]] std::optional<NodeTarget> split_node_target(const HttpRequest& request);

/// The request as another daemon gets it: in the name of `user`. Of the caller's headers only those
/// that a handler reads are passed on, so that none can claim anything.
/// @param is_last  over its connection
[[nodiscard]] std::string peer_request(const HttpRequest& request, const NodeTarget& target,
                                       std::string_view user, bool is_last = true);

}  // namespace acc::agent::daemon
