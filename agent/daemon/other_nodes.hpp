#pragma once

#include "agent/daemon/http_message.hpp"
#include "agent/daemon/jobs.hpp"

#include <boost/asio/awaitable.hpp>

namespace acc::agent::daemon {

/// The daemons of other nodes, asked in the name of a caller of this one.
class OtherNodes {
 public:
  virtual ~OtherNodes() = default;
  /// A request to /v1/nodes/HOST[:PORT]/…: the reply of the daemon there, or why there is none.
  virtual boost::asio::awaitable<HttpReply> pass_on(Principal who, HttpRequest request) = 0;
  /// GET /v1/nodes: all nodes of the settings, with their /v1/node or why there is none.
  virtual boost::asio::awaitable<HttpReply> list(Principal who) = 0;
};

}  // namespace acc::agent::daemon
