#pragma once

#include "rendezvous/channel.hpp"
#include "rendezvous/messages.hpp"
#include "rendezvous/peer.hpp"

#include <boost/asio/io_context.hpp>

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

namespace acc::rendezvous {

/// Connection between an agent and a coordinator: a channel, or memory alone if both are in one
/// process.
class Link {
 public:
  struct Handlers {
    std::function<void(const Frame&)> on_frame;
    /// Called once, never after close().
    std::function<void(const LinkLoss&)> on_lost;
  };

  Link() = default;
  Link(const Link&) = delete;
  Link& operator=(const Link&) = delete;
  virtual ~Link() = default;

  virtual void start(Handlers handlers) = 0;
  virtual void send(const Frame& frame) = 0;
  /// A frame that was encoded once for several peers.
  virtual void send(const Frame& frame, std::string_view encoded) = 0;
  /// See Channel; within one process there are no limits.
  virtual void allow_queued(std::size_t bytes) = 0;
  virtual void allow_frames(std::size_t frames) = 0;
  /// Closes once everything sent has left; no handler is called any more.
  virtual void close() = 0;
  /// Numeric; empty within one process.
  [[nodiscard]] virtual std::string peer_address() const = 0;
  [[nodiscard]] virtual std::string own_address() const = 0;
};

/// Owns the channel.
[[nodiscard]] std::shared_ptr<Link> link_over(std::shared_ptr<Channel> channel);
/// Two ends in one process; each receives the other's frames from the loop, in order.
[[nodiscard]] std::pair<std::shared_ptr<Link>, std::shared_ptr<Link>> link_inside(
    boost::asio::io_context& io);

}  // namespace acc::rendezvous
