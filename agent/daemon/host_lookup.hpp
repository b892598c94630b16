#pragma once

#include "agent/daemon/peer_rules.hpp"
#include "common/duration.hpp"

#include <boost/asio/awaitable.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>

#include <sys/types.h>
#include <unistd.h>

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace acc::agent::daemon {

struct HostAddresses {
  std::vector<boost::asio::ip::tcp::endpoint> found;
  std::string failed;  ///< why there are none
};

struct LookupLimits {
  std::size_t threads = 32;
  std::size_t of_users = 24;  ///< of `threads`: the rest is for operators alone
  std::size_t of_a_user = 4;
  std::size_t of_operator = 16;  ///< root, the daemon's user
  uid_t own = ::geteuid();
};

/// Addresses of host names. The system's resolver blocks for as long as a server doesn't answer, so
/// each look-up has a thread of its own while it lasts. Each user has a queue and a share of the
/// threads, which the users' queues get in turn: names that no server answers for delay the further
/// names of the user who asked for them, and of no other.
class HostLookups {
 public:
  /// Blocks; called on any thread, several at once.
  using Resolver = std::function<HostAddresses(const NodeAddress&)>;

  explicit HostLookups(boost::asio::io_context& io);
  HostLookups(boost::asio::io_context& io, LookupLimits limits, Resolver resolver);
  ~HostLookups();
  HostLookups(const HostLookups&) = delete;
  HostLookups& operator=(const HostLookups&) = delete;

  /// @param uid  who named the host; 0 for names from the settings of the daemon
  boost::asio::awaitable<HostAddresses> find(uid_t uid, NodeAddress of, Instant due);

 private:
  struct Question;
  class Asker;
  class Shares;

  boost::asio::io_context& io_;
  std::shared_ptr<Shares> shares_;  ///< shared with threads and frames that end after us
};

}  // namespace acc::agent::daemon
