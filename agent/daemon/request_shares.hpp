#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace acc::agent::daemon {

/// Requests that are open, counted under names, each with a bound of its own. Pure.
class RequestShares {
 public:
  struct Bound {
    std::string name;
    std::size_t most = 0;
  };
  /// Held while the request is open; may outlive this object.
  using Share = std::shared_ptr<void>;
  /// One under each of the names; null, and none is counted: one of the bounds is reached.
  [[nodiscard]] Share take(std::vector<Bound> bounds);
  [[nodiscard]] Share take(std::string name, std::size_t most);
  [[nodiscard]] std::size_t open(const std::string& name) const;

 private:
  using Counts = std::map<std::string, std::size_t>;
  std::shared_ptr<Counts> counts_ = std::make_shared<Counts>();
};

/// Of the connections that a daemon takes of others: in all, and of one address. A launch follows
/// two streams of each of its hosts, perhaps a thousand behind one address.
inline constexpr std::size_t kPeerConnections = 4096;
inline constexpr std::size_t kPeerConnectionsOfSource = 2304;
/// What is left of them for root's requests, and for who is just saying for which user it asks.
inline constexpr std::size_t kLeftToRoot = 512;

/// Connections to other nodes that are kept for the next request.
inline constexpr std::size_t kKeptPeers = 256;
/// Connections to other nodes for lists of all nodes: 256 of users, and the rest is left to root.
inline constexpr std::size_t kListedPeers = 320;

/// A stream lasts as long as its reader wants; all others are over within a bounded time. They are
/// counted apart: who follows a job must be able to stop it, and to ask for its state.
enum class RequestKind : std::uint8_t { brief, stream };
/// @param path  its segments behind /v1
[[nodiscard]] RequestKind kind_of(std::string_view method, std::span<const std::string> path);

/// Requests that users other than root have open.
struct RequestLimits {
  std::size_t all = 0;
  std::size_t of_source = 0;
  std::size_t of_user = 0;
  std::size_t of_user_at_source = 0;
};
inline constexpr RequestLimits kStreamLimits{3072, 1536, 1536, 1024};
inline constexpr RequestLimits kBriefLimits{512, 256, 256, 128};
static_assert(kStreamLimits.all + kBriefLimits.all + kLeftToRoot <= kPeerConnections);
static_assert(kStreamLimits.of_source + kBriefLimits.of_source + kLeftToRoot <=
              kPeerConnectionsOfSource);

struct ShareLimits {
  RequestLimits streams = kStreamLimits;
  RequestLimits briefs = kBriefLimits;
};

/// A share of a node for the user that another daemon vouches for, not root.
/// @param source  number of the other daemon's address
[[nodiscard]] RequestShares::Share take_share(RequestShares& shares, uid_t source,
                                              const std::string& user, RequestKind kind,
                                              const ShareLimits& of = {});

}  // namespace acc::agent::daemon
