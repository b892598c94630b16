#pragma once

#include "rendezvous/admission.hpp"
#include "rendezvous/channel.hpp"
#include "rendezvous/socket_users.hpp"

#include <boost/asio/basic_socket_acceptor.hpp>

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>

namespace acc::rendezvous {

struct ListenOptions {
  HostPort at;                            ///< a numeric address of this host; port 0: any free one
  bool is_dual_stack = false;             ///< at "::": IPv4 too, alone if this kernel has no IPv6
  std::shared_ptr<const TlsContext> tls;  ///< null: plain, which only loopback may be…
  bool is_insecure = false;               ///< …unless the user said so
  AdmissionLimits admission;
  ChannelLimits channel;
};

/// A rejected connection, for the log: one line per minute and source.
struct TurnedAway {
  std::string source;       ///< address, IPv6 as /64
  std::string what;         ///< about the latest one: "authentication failed"
  std::uint64_t times = 1;  ///< since the last line about this source
};

/// Accepts connections and hands them on once the peer is authenticated and has sent a whole first
/// frame (P5: until then a connection costs little and changes nothing).
class Listener : public std::enable_shared_from_this<Listener> {
 public:
  /// @param first_frame  whole, undecoded. `on_peer` start()s the channel before it returns; a
  /// channel that is not kept is closed.
  using OnPeer = std::function<void(std::shared_ptr<Channel>, std::string_view first_frame)>;
  using OnTurnedAway = std::function<void(const TurnedAway&)>;

  /// Binds and listens; connections are accepted from start() on.
  static Result<std::shared_ptr<Listener>> open(boost::asio::io_context& io, ListenOptions options);
  Listener(boost::asio::io_context& io, ListenOptions options, UniqueFd socket, UniqueFd spare);
  ~Listener();
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;

  void start(OnPeer on_peer, OnTurnedAway on_turned_away);
  /// Stops accepting and drops connections that aren't handed on yet. Channels handed on stay.
  void stop();

  [[nodiscard]] HostPort at() const;
  [[nodiscard]] std::size_t half_open() const noexcept { return admission_.half_open(); }

 private:
  using Acceptor = boost::asio::basic_socket_acceptor<boost::asio::ip::tcp,
                                                      boost::asio::io_context::executor_type>;
  using Timer =
      boost::asio::basic_waitable_timer<std::chrono::steady_clock,
                                        boost::asio::wait_traits<std::chrono::steady_clock>,
                                        boost::asio::io_context::executor_type>;

  void wait();
  void accept_batch();
  bool turn_one_away();
  void take(UniqueFd socket, HostPort from);
  bool on_hello(ConnectionId id, bool names_key);
  void on_first_frame(ConnectionId id, std::string_view frame);
  void drop(ConnectionId id, const std::string& why);
  void arm_timer();
  void on_timer();

  boost::asio::io_context& io_;
  ListenOptions options_;
  Acceptor acceptor_;
  UniqueFd spare_;  ///< released for a moment to accept and close a connection when none is left
  Timer timer_;     ///< of the oldest half-open connection
  Timer pause_;
  Instant timer_due_ = Instant::max();
  Admission admission_;
  SocketUsers users_;
  ConnectionId last_ = 0;
  struct HalfOpen {
    std::shared_ptr<Channel> channel;
    bool is_trusted = true;
    bool is_dismissed = false;
  };
  std::map<ConnectionId, HalfOpen> half_open_;
  OnPeer on_peer_;
  OnTurnedAway on_turned_away_;
};

}  // namespace acc::rendezvous
