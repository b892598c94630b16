#pragma once

#include "agent/daemon/http_message.hpp"
#include "agent/daemon/http_quota.hpp"
#include "agent/daemon/http_stream.hpp"
#include "agent/daemon/jobs.hpp"
#include "common/duration.hpp"

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/steady_timer.hpp>

#include <sys/types.h>

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>

namespace acc::agent::daemon {

struct HttpTimes {
  Millis header{10'000};   ///< from a request's first byte to the end of its headers
  Millis request{30'000};  ///< from its first byte to its reply; not for a streamed body
  Millis idle{60'000};     ///< between two requests
  Millis linger{5'000};    ///< for reading on after a refusal, so that the client can read it
};

using HttpHandler = std::function<boost::asio::awaitable<HttpReply>(Principal, HttpRequest)>;

/// Which connection makes a large reply: of one user one at a time, in the order of their arrival,
/// and one each turn of the loop.
class ReplyTurns {
 public:
  /// Held while a reply is made; lives no longer than this object.
  using Turn = std::shared_ptr<void>;
  /// No deadline: the connections before it are a bounded number, and each has milliseconds.
  boost::asio::awaitable<Turn> wait(uid_t uid);

 private:
  /// Cancelled at their turn. A user's queue is there while a turn is held.
  using Queue = std::deque<std::shared_ptr<boost::asio::steady_timer>>;
  void end(uid_t uid);

  std::map<uid_t, Queue> queues_;
};

/// What all connections of a server have in common.
struct HttpShared {
  HttpHandler handler;
  HttpTimes times;
  ClientQuota quota;
  ReplyTurns turns{};
};

/// One connection: requests in, replies out, one after the other, each with its deadlines. The
/// same for all kinds of sockets.
class HttpConnection {
 public:
  HttpConnection(boost::asio::any_io_executor executor, std::unique_ptr<ByteStream> stream,
                 Principal who, std::shared_ptr<HttpShared> shared);
  ~HttpConnection();
  HttpConnection(const HttpConnection&) = delete;
  HttpConnection& operator=(const HttpConnection&) = delete;

  /// Returns when the connection has ended; this object must live until then. A call that takes
  /// longer than a request may is left to itself.
  boost::asio::awaitable<void> run();
  /// Ends it after the reply that is being made; a streamed one at once.
  void stop();
  /// Ends it now, for another user's connection. What its handler does goes on without it.
  void give_way();
  /// Nothing: a request is being read, carried out or answered.
  [[nodiscard]] std::optional<Instant> idle_since() const;
  /// A request is being carried out that may change something.
  [[nodiscard]] bool is_changing() const;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

/// `{"error": what, "code": …}`
[[nodiscard]] HttpReply error_reply(const HttpRefusal& refusal);

}  // namespace acc::agent::daemon
