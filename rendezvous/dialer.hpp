#pragma once

#include "rendezvous/channel.hpp"
#include "rendezvous/lookup.hpp"

#include <boost/system/result.hpp>

#include <functional>
#include <memory>
#include <string>

namespace acc::rendezvous {

struct DialOptions {
  HostPort to;
  std::shared_ptr<const TlsContext> tls;  ///< null: plain
  bool is_insecure = false;               ///< plain even to another user's listener on this machine
  /// For the name look-up and connecting. The handshake may take longer on a slow network: several
  /// times as long as connecting took.
  Millis limit{3000};
  ChannelLimits channel;
};

struct DialError {
  enum class Kind {
    name_unknown,
    refused,         ///< no process listens there
    no_answer,       ///< within the limit
    unreachable,     ///< no route
    authentication,  ///< the secrets differ
    has_no_secret,   ///< the other side speaks plain
    not_ours,        ///< another program
    reset,           ///< the connection broke during the handshake
    system,          ///< this side could not even try: see errnum
  };
  Kind kind = Kind::system;
  /// For the user: what was tried, what was found, what to check.
  std::string what;
  int errnum = 0;
};

using Dialled = boost::system::result<std::shared_ptr<Channel>, DialError>;

/// One attempt to reach a peer: all its addresses, one after the other. Dropping it cancels it
/// without calling `done`. That a listener requires a secret and we have none shows only in its
/// answer to our first frame: Closed::Cause::needs_secret of the channel.
class Dial : public std::enable_shared_from_this<Dial> {
 public:
  using OnDone = std::function<void(Dialled)>;

  Dial(boost::asio::io_context& io, DialOptions options);
  /// Call once. `done` is called once, from the loop; it start()s the channel before it returns.
  void start(OnDone done);

 private:
  using Timer =
      boost::asio::basic_waitable_timer<std::chrono::steady_clock,
                                        boost::asio::wait_traits<std::chrono::steady_clock>,
                                        boost::asio::io_context::executor_type>;

  void resolved(Lookup::Endpoints found, const std::string& failed);
  void try_next();
  void connected(boost::system::error_code failed);
  void note_failure(int errnum);
  void shake_hands();
  void handshake_failed(const Closed& closed);
  void arm(Instant due);
  void on_timer();
  void succeed();
  void fail(DialError::Kind kind, std::string what, int errnum = 0);
  void fail_to_connect();
  [[nodiscard]] std::string target() const;
  [[nodiscard]] std::string our_secret() const;

  enum class Step { looking_up, connecting, shaking_hands, over };

  boost::asio::io_context& io_;
  DialOptions options_;
  OnDone done_;
  Step step_ = Step::looking_up;
  std::shared_ptr<Lookup> lookup_;
  Channel::Socket socket_;
  Timer timer_;
  Instant due_;
  Instant connecting_since_{};
  Millis patience_{0};      ///< for the handshake, in messages
  Lookup::Endpoints left_;  ///< the next one is last
  boost::asio::ip::tcp::endpoint now_;
  std::string tried_;
  DialError worst_;  ///< while connecting: "refused" says more than "no answer"
  bool has_failed_ = false;
  std::shared_ptr<Channel> channel_;
  std::string expected_refusal_;  ///< by a listener of root's; empty: none
};

/// Dials; the result must be kept until `done` is called.
[[nodiscard]] std::shared_ptr<Dial> dial(boost::asio::io_context& io, DialOptions options,
                                         Dial::OnDone done);

}  // namespace acc::rendezvous
