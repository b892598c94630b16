#pragma once

#include "agent/daemon/host_lookup.hpp"
#include "agent/daemon/peer_rules.hpp"
#include "agent/daemon/peer_stream.hpp"
#include "agent/daemon/request_shares.hpp"
#include "agent/daemon/reserved_ports.hpp"
#include "common/alive.hpp"
#include "common/duration.hpp"

#include <boost/asio/awaitable.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/system/result.hpp>

#include <deque>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace acc::agent::daemon {

/// Why another daemon can't be asked. `code` is that of the error's body.
struct PeerError {
  unsigned status = 502;
  std::string_view code;
  std::string what;  ///< names the host, and says what to do
};
using PeerDialled = boost::system::result<std::unique_ptr<PeerStream>, PeerError>;

/// Connections that are being made to one address, in the order of their arrival: a daemon takes a
/// bounded number of handshakes of one host at once, and refuses the rest.
class DialTurns {
 public:
  explicit DialTurns(boost::asio::io_context& io) : io_{io} {}
  DialTurns(const DialTurns&) = delete;
  DialTurns& operator=(const DialTurns&) = delete;

  /// Held while a connection is made. Empty: `due` passed before it was this one's turn.
  using Turn = std::shared_ptr<void>;
  boost::asio::awaitable<Turn> wait(std::string address, Instant due);

 private:
  struct Queue {
    int running = 0;
    std::deque<std::shared_ptr<boost::asio::steady_timer>> waiting;  ///< cancelled at their turn
  };
  void end(const std::string& address);
  void wake_next(const std::string& address);

  boost::asio::io_context& io_;
  std::map<std::string, Queue> queues_;
  Alive alive_;
};

/// Of one caller to one node.
struct PeerWay {
  std::string node;  ///< as the caller names it
  NodeAddress to;    ///< with a port
  std::string user;
  uid_t uid = 0;  ///< as of HostLookups::find
  std::shared_ptr<const rendezvous::TlsContext> tls;
  RequestKind kind = RequestKind::brief;
};

/// What all connections that are being made share.
struct PeerDials {
  explicit PeerDials(boost::asio::io_context& on) : io{on}, lookups{on}, turns{on} {}
  boost::asio::io_context& io;
  HostLookups lookups;
  DialTurns turns;
  ReservedPorts ports;
};

/// A connection to the daemon of a node, over which both have proved that they hold the secret; all
/// its addresses are tried one after the other. One that has too many connections at once is tried
/// again. Those of uid 0 don't wait behind other users', and are tried from a port below 1024, too,
/// where the door there may be crowded.
/// @param limit  for looking up the name, connecting and shaking hands together
[[nodiscard]] boost::asio::awaitable<PeerDialled> dial_peer(PeerDials& dials, PeerWay way,
                                                            Millis limit);

/// The codes of errors about another node, which aren't those of their status alone.
[[nodiscard]] std::span<const std::string_view> peer_error_codes();

}  // namespace acc::agent::daemon
