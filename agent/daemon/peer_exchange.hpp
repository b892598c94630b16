#pragma once

#include "agent/daemon/caller_link.hpp"
#include "agent/daemon/http_message.hpp"
#include "agent/daemon/http_reply_parser.hpp"
#include "agent/daemon/peer_dial.hpp"
#include "agent/daemon/peer_stream.hpp"
#include "common/duration.hpp"

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>

#include <array>
#include <functional>
#include <memory>
#include <string>

namespace acc::agent::daemon {

/// One request to another daemon and its reply, over a connection of its own.
struct PeerExchange {
  PeerExchange(std::unique_ptr<PeerStream> over, std::string name, bool is_head)
      : stream{std::move(over)}, node{std::move(name)}, parser{is_head} {}

  static constexpr std::size_t kPieceBytes = 16 * 1024;  // as a TLS record
  std::unique_ptr<PeerStream> stream;
  std::string node;
  ReplyParser parser;
  std::function<void()> on_sent;   ///< the request, all of it
  std::function<void()> on_whole;  ///< the reply ended, and its connection may go on
  std::string input;               ///< read, and not yet parsed
  std::string body;                ///< parsed, and not yet passed on
  std::string silence{};           ///< why no answer is waited for any longer
  bool is_answered = false;        ///< or failed
  std::shared_ptr<void> share{};   ///< of the caller's requests, until this one is over
  std::array<char, kPieceBytes> piece{};

  /// The next step of the reply; `broken` also for its end in the middle.
  boost::asio::awaitable<ReplyParser::Step> next();
  /// Its status, and what of its body came along; nothing: `error` says why.
  boost::asio::awaitable<bool> ask(const boost::asio::any_io_executor& executor,
                                   std::string request, Instant due, Millis limit,
                                   PeerError& error);
  /// For a caller: that it has gone, the other daemon learns by the end of the connection. Before
  /// that it gets the request, if the network carries it: it may be a stop, which isn't waited for.
  static std::shared_ptr<PeerExchange> make(std::unique_ptr<PeerStream> over, std::string name,
                                            bool is_head, std::shared_ptr<CallerLink> caller);
  static boost::asio::awaitable<void> relay(std::shared_ptr<PeerExchange> self,
                                            std::shared_ptr<BodyWriter> to);
};

}  // namespace acc::agent::daemon
