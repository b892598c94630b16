#pragma once

#include <sys/types.h>

#include <cstddef>
#include <map>
#include <memory>
#include <string>
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
/// Requests that users other than root have open: in all, and from one address. The connections
/// beyond are left to root, and to who is just saying for which user it asks.
inline constexpr std::size_t kMostOfUsers = kPeerConnections - 512;
inline constexpr std::size_t kMostOfSource = kPeerConnectionsOfSource - 512;
/// Of one user, a quarter; and from one address.
inline constexpr std::size_t kMostOfUser = kPeerConnections / 4;
inline constexpr std::size_t kMostOfUserAtSource = 512;

/// A share of a node for the user that another daemon vouches for, not root.
/// @param source  number of the other daemon's address
[[nodiscard]] RequestShares::Share take_share(RequestShares& shares, uid_t source,
                                              const std::string& user);

}  // namespace acc::agent::daemon
