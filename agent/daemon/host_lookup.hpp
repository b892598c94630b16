#pragma once

#include "agent/daemon/peer_rules.hpp"
#include "common/duration.hpp"

#include <boost/asio/awaitable.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>

#include <atomic>
#include <deque>
#include <memory>
#include <string>
#include <vector>

namespace acc::agent::daemon {

struct HostAddresses {
  std::vector<boost::asio::ip::tcp::endpoint> found;
  std::string failed;  ///< why there are none
};

/// Addresses of host names. The system's resolver blocks for as long as a server doesn't answer, so
/// each look-up has a thread of its own while it lasts: a wrong name delays no other. Of more at
/// once than there may be threads, as a launch over hundreds of hosts has, the rest waits; no user
/// has a share of their own, so that one who asks for many such names delays all.
class HostLookups {
 public:
  explicit HostLookups(boost::asio::io_context& io) : io_{io} {}
  HostLookups(const HostLookups&) = delete;
  HostLookups& operator=(const HostLookups&) = delete;

  boost::asio::awaitable<HostAddresses> find(NodeAddress of, Instant due);

 private:
  class Turn;
  class Asking;
  using Queue = std::deque<Turn*>;

  boost::asio::io_context& io_;
  /// Threads, also those that nothing waits for any more.
  std::shared_ptr<std::atomic<int>> running_ = std::make_shared<std::atomic<int>>(0);
  /// Shared with frames that are destroyed after us.
  std::shared_ptr<Queue> queue_ = std::make_shared<Queue>();
};

}  // namespace acc::agent::daemon
