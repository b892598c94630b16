#pragma once

#include "agent/accept_loop.hpp"
#include "agent/daemon/cluster_secret.hpp"
#include "agent/daemon/http_server.hpp"
#include "agent/daemon/peer_rules.hpp"
#include "agent/daemon/peer_stream.hpp"
#include "common/alive.hpp"
#include "rendezvous/admission.hpp"

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>

#include <cstdint>
#include <map>
#include <memory>
#include <string>

namespace acc::agent::daemon {

/// Of one that names a key of ours a launch over many hosts has hundreds at once, perhaps all from
/// one address (a proxy): they wait for their turn. One that names none is a stranger.
inline constexpr rendezvous::AdmissionLimits kPeerLimits{.half_open = 1024,
                                                         .named_per_source = 512};

/// Accepts other daemons over TLS, and hands on those that hold the secret. One that hasn't proved
/// it costs little and changes nothing: the rules are those of the rendezvous (admission.hpp), but
/// that of those that name a key a bounded number of a source shakes hands at a time, in the order
/// of their arrival; the rest waits as long as it may take to prove itself.
class PeerDoor {
 public:
  PeerDoor(boost::asio::io_context& io, ClusterSecret& secret, HttpServer& server,
           rendezvous::AdmissionLimits limits = kPeerLimits);
  ~PeerDoor();
  PeerDoor(const PeerDoor&) = delete;
  PeerDoor& operator=(const PeerDoor&) = delete;

  /// Binds and accepts. An empty host: all addresses, IPv6 and IPv4.
  [[nodiscard]] Result<void> listen(const NodeAddress& at);
  [[nodiscard]] bool is_listening() const { return accepting_.is_accepting(); }
  void stop();

  [[nodiscard]] std::size_t half_open() const { return half_open_.size(); }

 private:
  using Id = rendezvous::ConnectionId;

  struct Peer {
    boost::asio::ip::tcp::endpoint from;
    std::string source;
    bool is_trusted = true;
  };
  /// How a connection that wasn't handed on ended.
  struct Outcome {
    bool is_dismissed = false;  ///< unseen: no failure
    std::string why;
  };

  void take(UniqueFd socket);
  boost::asio::awaitable<void> greet(Id id, Peer peer, std::unique_ptr<PeerStream> stream);
  boost::asio::awaitable<Outcome> prove(Id id, const Peer& peer, PeerStream& stream);
  void make_room(Id older);
  [[nodiscard]] Id newest_of_largest_source() const;
  bool is_crowded(Id named);
  boost::asio::awaitable<bool> await_turn(Id id, std::string source);
  void end_turn(Id id, const std::string& source);
  void wake_next(const std::string& source);
  void hurry(const std::string& source);
  void drop(Id id, const std::string& why);
  void failed(Id id, const std::string& source, const std::string& why);
  void arm_timer();

  boost::asio::io_context& io_;
  ClusterSecret& secret_;
  HttpServer& server_;
  boost::asio::steady_timer timer_;  ///< of the oldest half-open connection
  Instant timer_due_ = Instant::max();
  rendezvous::AdmissionLimits limits_;
  rendezvous::Admission admission_;
  struct HalfOpen {
    PeerStream* stream;  ///< of its coroutine, which removes this first
    std::string source;
    Instant since;
    bool is_dropped = false;  ///< its coroutine ends in this turn of the loop
  };
  std::map<Id, HalfOpen> half_open_;
  /// The handshakes of one source.
  struct Turns {
    std::map<Id, Instant> running;                                     ///< since when
    std::map<Id, std::shared_ptr<boost::asio::steady_timer>> waiting;  ///< cancelled at their turn
  };
  std::map<std::string, Turns> turns_;
  Id last_ = 0;
  AcceptLoop accepting_;
  Alive alive_;
};

}  // namespace acc::agent::daemon
