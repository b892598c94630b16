#pragma once

#include "common/duration.hpp"

#include <cstdint>
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
  std::string identity;  ///< of one daemon, over its starts until a reboot; empty: an older one's
  std::string name;      ///< its host name
};

/// The same machine by these names: equal, or one with the domain of the other behind it.
[[nodiscard]] bool is_same_host(std::string_view one, std::string_view other);

/// A node by which it is compared: "b:29700" of "B", "fd00::1:29700" of "[FD00:0::1]".
[[nodiscard]] std::string node_key(const std::string& node, std::uint16_t default_port);

/// A node of the settings that the daemon which answered for another one may belong to.
struct Suspect {
  std::string node;
  bool blocks = false;      ///< where it can't be asked, no order to the other one is given
  bool was_silent = false;  ///< it was asked just now, in vain
};

/// The nodes of the settings, with who answered for each of them last. What is known is little: a
/// node may be named by an alias, or an address that something translates, and hosts may have one
/// host name. So a node is refused only where another name of the settings is answered by the same
/// daemon at that moment; what is kept here says only which of them to ask.
class SeenNodes {
 public:
  SeenNodes(PeerIdentity own, std::uint16_t default_port)
      : own_{std::move(own)}, default_port_{default_port} {}

  /// @param nodes  of the settings: HOST[:PORT]
  void set_nodes(const std::vector<std::string>& nodes);
  [[nodiscard]] bool is_empty() const { return nodes_.empty(); }
  [[nodiscard]] bool has(const std::string& node) const;
  /// Of those that aren't in the settings nothing is kept, nor of a daemon without an identity.
  void saw(const std::string& node, const PeerIdentity& answered, Instant now);
  /// It could not be asked. What is known of it stays.
  void was_silent(const std::string& node, Instant now);
  /// No daemon of this cluster is there: nothing is known of it any more.
  void was_absent(const std::string& node, Instant now);
  /// That daemon was judged to be this node's.
  void accept(const std::string& node, const PeerIdentity& answered);
  /// Other nodes of the settings of which the daemon that answered for `wanted` may be, to be
  /// asked: at most 16. Signs of that are that it answered for one last, that its host name is that
  /// of one, or the host name that was said for one last. Where only the host name says so, and
  /// `wanted` was known under that host name, it doesn't block: hosts may have one name.
  /// @param is_here  at our own door, directly
  [[nodiscard]] std::vector<Suspect> suspects(const std::string& wanted,
                                              const PeerIdentity& answered, bool is_here,
                                              Instant now) const;
  /// Whether that daemon answered for it, not before `since`.
  [[nodiscard]] bool is_answered_by(const std::string& node, const PeerIdentity& answered,
                                    Instant since) const;
  [[nodiscard]] bool is_own(const PeerIdentity& answered) const {
    return !answered.identity.empty() && answered.identity == own_.identity;
  }
  /// Whether it is this daemon, under a name that isn't its host's.
  [[nodiscard]] bool is_own_in_disguise(const std::string& wanted,
                                        const PeerIdentity& answered) const;
  /// The sentence for it.
  [[nodiscard]] std::string complaint(const std::string& wanted, const std::string& other,
                                      const PeerIdentity& answered) const;
  [[nodiscard]] const PeerIdentity& own() const { return own_; }

 private:
  struct Node {
    std::string name;  ///< in the settings
    std::string host;
    PeerIdentity last{};      ///< who answered for it last
    PeerIdentity accepted{};  ///< the last that was judged to be its own
    Instant at = Instant::min();
    bool is_silent = false;
  };
  using Nodes = std::map<std::string, Node, std::less<>>;
  /// A cluster has thousands of nodes, each of which a list compares with all others.
  using Index = std::multimap<std::string, Nodes::iterator>;

  void forget_last(Nodes::iterator node);
  void link_last(Nodes::iterator node);
  static void unlink(Index& index, const std::string& key, Nodes::iterator node);
  [[nodiscard]] Nodes::const_iterator find(const std::string& node) const;

  PeerIdentity own_;
  std::uint16_t default_port_;
  Nodes nodes_;    ///< by node_key()
  Index by_host_;  ///< by the first label of the name, in small letters
  Index by_identity_;
  Index by_said_name_;  ///< the host name that was said for it last, in small letters
};

/// The sentence for an order that isn't given, as `other` can't be asked.
[[nodiscard]] std::string doubt_about(const std::string& wanted, const std::string& other,
                                      const PeerIdentity& answered);
/// The sentence for a connection to `wanted` that ended at this daemon.
[[nodiscard]] std::string leads_back(const std::string& wanted, const PeerIdentity& own);

}  // namespace acc::agent::daemon
