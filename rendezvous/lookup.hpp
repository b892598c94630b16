#pragma once

#include "rendezvous/messages.hpp"

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>

#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace acc::rendezvous {

/// Looks up the addresses of a host, IPv4 and IPv6, without blocking the loop: names are resolved
/// in a thread of asio. Dropping it cancels; the thread itself ends when the system's resolver
/// does.
class Lookup : public std::enable_shared_from_this<Lookup> {
 public:
  using Endpoints = std::vector<boost::asio::ip::tcp::endpoint>;
  /// @param failed  empty, or the system's message: "Name or service not known"
  using OnDone = std::function<void(Endpoints found, const std::string& failed)>;

  explicit Lookup(boost::asio::io_context& io) : io_{io}, resolver_{io} {}
  /// Call once. `done` is called from the loop.
  void start(const HostPort& of, OnDone done);

 private:
  using Resolver =
      boost::asio::ip::basic_resolver<boost::asio::ip::tcp, boost::asio::io_context::executor_type>;
  boost::asio::io_context& io_;
  Resolver resolver_;
};

}  // namespace acc::rendezvous
