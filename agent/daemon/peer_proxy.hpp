#pragma once

#include "agent/daemon/cluster_secret.hpp"
#include "agent/daemon/kept_peers.hpp"
#include "agent/daemon/listing_turns.hpp"
#include "agent/daemon/other_nodes.hpp"
#include "agent/daemon/peer_api.hpp"
#include "agent/daemon/peer_check.hpp"
#include "agent/daemon/peer_dial.hpp"
#include "agent/daemon/peer_greeting.hpp"
#include "agent/daemon/request_shares.hpp"
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

struct PeerExchange;

struct ProxySettings {
  std::vector<std::string> nodes;         ///< HOST[:PORT]
  std::uint16_t port = kDefaultPeerPort;  ///< of a node without one
  Millis connect{3'000};
  /// Until a reply begins: less than our own limit for a request, so that the reason is told.
  Millis reply{25'000};
  Millis list{2'000};  ///< for each node of the list
  /// Of each user at a time, to each node; not root's. More than the other daemon takes of those
  /// that are brief, as they wait here for a node that gives no answer.
  std::size_t requests_of_user = 4 * kBriefLimits.of_user_at_source;
  std::size_t streams_of_user = kStreamLimits.of_user_at_source;
  std::size_t kept = kKeptPeers;  ///< connections, of all users
  std::size_t listed = kListedPeers;  ///< connections of lists of all nodes, of all users
};

/// Passes requests on to the daemons of other nodes, byte by byte: a caller that doesn't read stops
/// the reading from there. A connection whose reply is whole is kept for a moment: of a launch
/// several requests go to each node one after the other, and a handshake costs most of one.
class PeerProxy final : public OtherNodes {
 public:
  PeerProxy(boost::asio::io_context& io, const Jobs& jobs, ClusterSecret& secret,
            ProxySettings settings);
  ~PeerProxy() override;

  boost::asio::awaitable<HttpReply> pass_on(Principal who, HttpRequest request) override;
  boost::asio::awaitable<HttpReply> list(Principal who) override;
  void set_nodes(std::vector<std::string> nodes) {
    check_.set_nodes(nodes);
    settings_.nodes = std::move(nodes);
  }

 private:
  struct Listing;

  boost::asio::awaitable<void> ask_all(std::string user, uid_t uid,
                                       std::shared_ptr<Listing> listing);
  boost::asio::awaitable<void> ask_in_turn(std::string user, uid_t uid,
                                           std::shared_ptr<Listing> listing, std::size_t number);
  boost::asio::awaitable<void> ask_one(std::string user, std::shared_ptr<Listing> listing,
                                       std::size_t number);
  [[nodiscard]] NodeAddress with_port(NodeAddress address) const;

  /// A new connection, to a daemon that isn't known to be another node's.
  struct Connected {
    std::unique_ptr<PeerStream> stream;
    bool is_sure = true;  ///< false: it is for looking alone
  };
  using Connection = boost::system::result<Connected, PeerError>;
  boost::asio::awaitable<Connection> connect(PeerWay way, bool may_change);
  boost::asio::awaitable<Sighting> greet(std::string node, Instant due);
  boost::asio::awaitable<bool> leads_here(std::string node, Instant due);
  void compare(Listing& listing);
  /// @param line  the user and the node
  [[nodiscard]] RequestShares::Share take_own_share(const std::string& line, RequestKind kind);
  boost::asio::awaitable<void> doubt_peer(std::shared_ptr<PeerExchange> exchange, PeerWay way);

  boost::asio::io_context& io_;
  const Jobs& jobs_;
  ClusterSecret& secret_;
  ProxySettings settings_;
  PeerGreeting greeting_;
  PeerCheck check_;
  RequestShares shares_;  ///< of each user's requests to each node
  /// By user: those that ask while the nodes are being asked get the same answer.
  std::map<uid_t, std::shared_ptr<Listing>> listings_;
  ListingTurns turns_;
  KeptPeers kept_;
  Alive alive_;
};

}  // namespace acc::agent::daemon
