#pragma once

#include "rendezvous/channel.hpp"
#include "rendezvous/messages.hpp"

#include <boost/asio/io_context.hpp>

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

namespace acc::rendezvous {

/// What joins an agent and a coordinator: a channel, or nothing but memory where both are in one
/// process.
class Link {
 public:
  struct Handlers {
    std::function<void(const Frame&)> on_frame;
    /// Once, never after close(). `not_authentic`: the secrets differ, so trying again won't help.
    std::function<void(const std::string& why, bool not_authentic)> on_lost;
  };

  Link() = default;
  Link(const Link&) = delete;
  Link& operator=(const Link&) = delete;
  virtual ~Link() = default;

  virtual void start(Handlers handlers) = 0;
  virtual void send(const Frame& frame) = 0;
  /// A frame that was encoded once for many.
  virtual void send(const Frame& frame, std::string_view encoded) = 0;
  /// After what was sent has left; no handler is called any more.
  virtual void close() = 0;
  /// Numeric; empty within one process.
  [[nodiscard]] virtual std::string peer_address() const = 0;
  [[nodiscard]] virtual std::string own_address() const = 0;
};

/// Owns the channel.
[[nodiscard]] std::shared_ptr<Link> link_over(std::shared_ptr<Channel> channel);
/// Two ends in one process; what one sends the other gets from the loop, in order.
[[nodiscard]] std::pair<std::shared_ptr<Link>, std::shared_ptr<Link>> link_inside(
    boost::asio::io_context& io);

}  // namespace acc::rendezvous
