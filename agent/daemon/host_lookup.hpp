#pragma once

#include "agent/daemon/peer_rules.hpp"
#include "common/duration.hpp"

#include <boost/asio/awaitable.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>

#include <atomic>
#include <memory>
#include <string>
#include <vector>

namespace acc::agent::daemon {

struct HostAddresses {
  std::vector<boost::asio::ip::tcp::endpoint> found;
  std::string failed;  ///< why there are none
};

/// Addresses of host names. The system's resolver blocks for as long as a server doesn't answer, so
/// each look-up has a thread of its own while it lasts: one user's wrong name delays no other.
class HostLookups {
 public:
  explicit HostLookups(boost::asio::io_context& io) : io_{io} {}
  HostLookups(const HostLookups&) = delete;
  HostLookups& operator=(const HostLookups&) = delete;

  boost::asio::awaitable<HostAddresses> find(NodeAddress of, Instant due);

 private:
  boost::asio::io_context& io_;
  /// Threads, also those that nothing waits for any more.
  std::shared_ptr<std::atomic<int>> running_ = std::make_shared<std::atomic<int>>(0);
};

}  // namespace acc::agent::daemon
