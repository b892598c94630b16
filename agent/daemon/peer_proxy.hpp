#pragma once

#include "agent/daemon/cluster_secret.hpp"
#include "agent/daemon/other_nodes.hpp"
#include "agent/daemon/peer_api.hpp"
#include "agent/daemon/peer_dial.hpp"
#include "agent/daemon/peer_identity.hpp"
#include "common/alive.hpp"
#include "common/duration.hpp"

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace acc::agent::daemon {

struct ProxySettings {
  std::vector<std::string> nodes;         ///< HOST[:PORT]
  std::uint16_t port = kDefaultPeerPort;  ///< of a node without one
  Millis connect{3'000};
  /// Until a reply begins: less than our own limit for a request, so that the reason is told.
  Millis reply{25'000};
  Millis list{2'000};  ///< for each node of the list
};

/// Passes requests on to the daemons of other nodes, byte by byte: a caller that doesn't read stops
/// the reading from there. A connection whose reply is whole is kept for a moment: of a launch
/// several requests go to each node one after the other, and a handshake costs most of one.
class PeerProxy final : public OtherNodes {
 public:
  PeerProxy(boost::asio::io_context& io, const Jobs& jobs, ClusterSecret& secret, UserNames& users,
            ProxySettings settings);
  ~PeerProxy() override;

  boost::asio::awaitable<HttpReply> pass_on(Principal who, HttpRequest request) override;
  boost::asio::awaitable<HttpReply> list(Principal who) override;
  void set_nodes(std::vector<std::string> nodes) {
    seen_.set_nodes(nodes);
    settings_.nodes = std::move(nodes);
  }

 private:
  struct Exchange;
  struct Listing;

  boost::asio::awaitable<void> ask_some(std::string user, std::shared_ptr<Listing> listing);
  boost::asio::awaitable<void> ask_one(std::string user, std::shared_ptr<Listing> listing,
                                       std::size_t number);
  [[nodiscard]] NodeAddress with_port(NodeAddress address) const;

  using Tls = std::shared_ptr<const rendezvous::TlsContext>;
  /// Of one caller to one node.
  struct Way {
    std::string node;  ///< as the caller names it
    NodeAddress to;
    std::string user;
    uid_t uid = 0;
    Tls tls;
  };
  /// A new connection, to a daemon that isn't known to be another node's.
  boost::asio::awaitable<PeerDialled> connect(Way way);
  /// Who answers at the end of a new connection.
  struct Answerer {
    PeerIdentity identity;
    bool is_here = false;  ///< at our own door, directly
  };
  /// A daemon that has said who it is.
  struct Introduced;
  using Introduction = boost::system::result<Introduced, PeerError>;
  boost::asio::awaitable<Introduction> introduce(Way way, Millis limit);
  /// Why the daemon that answered isn't that of `node`; empty: there is no sign of that.
  boost::asio::awaitable<std::string> find_complaint(std::string node, Answerer from);
  boost::asio::awaitable<bool> is_answered_by(std::string node, PeerIdentity answered, Instant due);
  boost::asio::awaitable<bool> leads_to_own_door(NodeAddress node, Instant due);
  boost::asio::awaitable<bool> has_other_own_name(std::string node, Instant due);
  void compare(Listing& listing);
  [[nodiscard]] std::string complaint_in(const Listing& listing, std::size_t number) const;
  /// At our own door: what forwards it stands on this host, and reaches what it could itself.
  [[nodiscard]] bool is_own_door(const PeerStream& stream) const;
  /// A connection that was kept; null: there is none. A new secret has another context.
  [[nodiscard]] std::unique_ptr<PeerStream> take_kept(const std::string& line, const Tls& tls);
  void keep(const std::string& line, const Tls& tls, std::unique_ptr<PeerStream> stream);
  void close_kept();
  boost::asio::awaitable<void> doubt_peer(std::shared_ptr<Exchange> exchange, NodeAddress node,
                                          Tls tls, uid_t uid);

  boost::asio::io_context& io_;
  HostLookups lookups_;
  DialTurns turns_;
  const Jobs& jobs_;
  ClusterSecret& secret_;
  UserNames& users_;
  ProxySettings settings_;
  SeenNodes seen_;
  /// By user: those that ask while the nodes are being asked get the same answer.
  std::map<uid_t, std::shared_ptr<Listing>> listings_;
  struct Kept {
    std::string line;  ///< user and node, as the daemon at its end was judged
    Tls tls;
    std::unique_ptr<PeerStream> stream;
    Instant until;
  };
  std::vector<Kept> kept_;  ///< the oldest first
  boost::asio::steady_timer kept_timer_;
  Alive alive_;
};

}  // namespace acc::agent::daemon
