#pragma once

#include "agent/daemon/peer_stream.hpp"
#include "agent/daemon/request_shares.hpp"
#include "common/alive.hpp"
#include "common/duration.hpp"
#include "rendezvous/tls.hpp"

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

namespace acc::agent::daemon {

/// Connections to other daemons whose last reply is whole, for the next request of the same user to
/// the same node: each for a moment.
class KeptPeers {
 public:
  using Tls = std::shared_ptr<const rendezvous::TlsContext>;

  /// @param most  connections; one more replaces the oldest
  KeptPeers(boost::asio::io_context& io, std::size_t most) : most_{most}, timer_{io} {}

  /// Null: there is none. A new secret has another context. One that holds a share of its own (of
  /// the ports below 1024) isn't for a stream: that has been counted as a brief request's, and
  /// would be taken for as long as the stream lasts.
  /// @param line  user and node, as the daemon at its end was judged
  [[nodiscard]] std::unique_ptr<PeerStream> take(const std::string& line, const Tls& tls,
                                                 RequestKind kind);
  void keep(const std::string& line, const Tls& tls, std::unique_ptr<PeerStream> stream);

 private:
  void close_old();

  struct Kept {
    std::string line;
    Tls tls;
    std::unique_ptr<PeerStream> stream;
    Instant until;
  };
  std::size_t most_;
  std::vector<Kept> kept_;  ///< the oldest first
  boost::asio::steady_timer timer_;
  Alive alive_;
};

}  // namespace acc::agent::daemon
