#pragma once

#include "agent/daemon/host_lookup.hpp"
#include "agent/daemon/peer_rules.hpp"
#include "agent/daemon/peer_stream.hpp"
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
  /// Held while a connection from a port below 1024 lasts. Empty: there are enough of them.
  Turn take_reserved_port();
  /// An address took a connection from such a port after it had taken none from another one.
  void note_crowded(const std::string& address);
  [[nodiscard]] bool is_crowded(const std::string& address) const;

 private:
  struct Queue {
    int running = 0;
    std::deque<std::shared_ptr<boost::asio::steady_timer>> waiting;  ///< cancelled at their turn
  };
  void end(const std::string& address);
  void wake_next(const std::string& address);

  boost::asio::io_context& io_;
  std::map<std::string, Queue> queues_;
  int reserved_ports_ = 0;
  std::map<std::string, Instant> crowded_;  ///< until then
  Alive alive_;
};

/// A connection to the daemon at `to` (with a port), over which both have proved that they hold the
/// secret; all its addresses are tried one after the other. One that has too many connections at
/// once is tried again.
/// @param uid  as of HostLookups::find; root's doesn't wait behind other users', and is tried from
/// a port below 1024, too, where the door there may be crowded
/// @param due  for looking up the name, connecting and shaking hands together
[[nodiscard]] boost::asio::awaitable<PeerDialled> dial_peer(
    boost::asio::io_context& io, HostLookups& lookups, DialTurns& turns, uid_t uid, NodeAddress to,
    std::shared_ptr<const rendezvous::TlsContext> tls, Millis limit);

/// The codes of errors about another node, which aren't those of their status alone.
[[nodiscard]] std::span<const std::string_view> peer_error_codes();

}  // namespace acc::agent::daemon
