#pragma once

#include "common/duration.hpp"

#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

/// Which node answers at the end of a connection to another daemon; pure. The handshake proves a
/// holder of the cluster's secret, and all nodes hold the same one: what forwards connections at a
/// node's address makes another node answer in its name.
namespace acc::agent::daemon {

/// What a daemon says of itself, over a connection that nothing on the way can read or change.
struct PeerIdentity {
  std::string identity;  ///< random, of this start of the daemon; empty: an older acc-agent's
  std::string name;      ///< its host name
};

/// The same machine by these names: equal, or one with the domain of the other behind it.
[[nodiscard]] bool is_same_host(std::string_view one, std::string_view other);

/// The nodes of the settings, with who answered for each of them last. What is known is little: a
/// node may be named by an alias, or an address that something translates. So a node is refused
/// only where another name of the settings fits the daemon that answered.
class SeenNodes {
 public:
  explicit SeenNodes(PeerIdentity own) : own_{std::move(own)} {}

  /// @param nodes  of the settings: HOST[:PORT]
  void set_nodes(const std::vector<std::string>& nodes);
  [[nodiscard]] bool has(const std::string& node) const { return nodes_.contains(node); }
  /// Of those that aren't in the settings nothing is kept.
  void saw(const std::string& node, const PeerIdentity& answered, Instant now);
  /// Why the daemon that answered isn't that of `wanted`; empty: there is no sign of that.
  [[nodiscard]] std::string complaint(const std::string& wanted, const PeerIdentity& answered,
                                      Instant now) const;
  /// Whether it is this daemon, under a name that isn't its host's.
  [[nodiscard]] bool is_own_in_disguise(const std::string& wanted,
                                        const PeerIdentity& answered) const;
  /// Whether this daemon itself answered for it last.
  [[nodiscard]] bool is_known_as_own(const std::string& node, Instant now) const;
  [[nodiscard]] const PeerIdentity& own() const { return own_; }

 private:
  struct Node {
    std::string host;
    std::string identity{};  ///< of who answered for it last
    Instant at{};
  };
  using Nodes = std::map<std::string, Node, std::less<>>;
  /// A cluster has thousands of nodes, each of which a list compares with all others.
  using Index = std::multimap<std::string, Nodes::iterator>;

  static void unlink(Index& index, const std::string& key, Nodes::iterator node);
  [[nodiscard]] static bool is_recent(const Node& node, Instant now);

  PeerIdentity own_;
  Nodes nodes_;
  Index by_host_;  ///< by the first label of the name, in small letters
  Index by_identity_;
};

/// The sentence for a connection to `wanted` that ended at this daemon.
[[nodiscard]] std::string leads_back(const std::string& wanted, const PeerIdentity& own);

}  // namespace acc::agent::daemon
