#pragma once

#include "agent/daemon/api_call.hpp"

#include <boost/asio/awaitable.hpp>

#include <cstdint>
#include <optional>

namespace acc::agent::daemon {

/// Which bytes of a job's output, as they are.
struct RawLogQuery {
  OutputChoice choice;
  std::optional<std::uint64_t> from;  ///< offset in the file; nothing: its end
  bool follows = false;               ///< until the job has ended
};

/// GET /v1/jobs/ID/logs?format=raw: one stream byte by byte. A body that breaks off isn't whole:
/// the reader goes on behind what it has. X-Acc-From of the reply is the first byte's offset.
boost::asio::awaitable<HttpReply> serve_raw_log(ApiContext& api, ApiCall call, RawLogQuery query);

}  // namespace acc::agent::daemon
