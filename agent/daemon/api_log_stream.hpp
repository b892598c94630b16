#pragma once

#include "agent/daemon/api_call.hpp"

namespace acc::agent::daemon {

/// GET /v1/jobs/ID/logs: the file so far, or its growth as server-sent events.
boost::asio::awaitable<HttpReply> serve_logs(ApiContext& api, ApiCall call);

}  // namespace acc::agent::daemon
