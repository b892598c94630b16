#pragma once

#include "agent/daemon/host_lookup.hpp"
#include "agent/daemon/http_reply_parser.hpp"
#include "agent/daemon/peer_check.hpp"
#include "agent/daemon/peer_dial.hpp"
#include "agent/daemon/peer_identity.hpp"
#include "agent/daemon/peer_stream.hpp"
#include "common/duration.hpp"

#include <boost/asio/awaitable.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/system/result.hpp>

#include <cstdint>
#include <memory>
#include <string>

namespace acc::agent::daemon {

/// A daemon that has said who it is.
struct Introduced {
  std::unique_ptr<PeerStream> stream;  ///< null: the connection doesn't go on
  Answerer from;
  unsigned status = 0;
  std::string body;
};
using Introduction = boost::system::result<Introduced, PeerError>;

/// Opens connections to other daemons, and asks each who it is before anything else.
class PeerGreeting {
 public:
  PeerGreeting(boost::asio::io_context& io, std::uint16_t port) : dials_{io}, port_{port} {}

  boost::asio::awaitable<PeerDialled> dial(PeerWay way, Millis limit);
  /// @param limit  for the connection and its reply together
  boost::asio::awaitable<Introduction> introduce(PeerWay way, Millis limit);
  /// At our own door: what forwards it stands on this host, and reaches what it could itself.
  [[nodiscard]] bool is_own_door(const PeerStream& stream) const;
  boost::asio::awaitable<bool> leads_to_own_door(NodeAddress node, Instant due);

 private:
  PeerDials dials_;
  std::uint16_t port_;  ///< of this daemon
};

/// What a reply says of its daemon, by its headers.
[[nodiscard]] PeerIdentity identity_in(const ReplyParser& parser);
/// What an attempt that failed says of the node: whether a daemon is there at all.
[[nodiscard]] Sighting sighting_of(const PeerError& failed);

}  // namespace acc::agent::daemon
