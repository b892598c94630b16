#pragma once

#include "agent/daemon/host_lookup.hpp"
#include "agent/daemon/peer_rules.hpp"
#include "agent/daemon/peer_stream.hpp"

#include <boost/asio/awaitable.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/system/result.hpp>

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

/// A connection to the daemon at `to` (with a port), over which both have proved that they hold the
/// secret; all its addresses are tried one after the other.
/// @param due  for looking up the name, connecting and shaking hands together
[[nodiscard]] boost::asio::awaitable<PeerDialled> dial_peer(
    boost::asio::io_context& io, HostLookups& lookups, NodeAddress to,
    std::shared_ptr<const rendezvous::TlsContext> tls, Millis limit);

/// The codes of errors about another node, which aren't those of their status alone.
[[nodiscard]] std::span<const std::string_view> peer_error_codes();

}  // namespace acc::agent::daemon
