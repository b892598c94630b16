#pragma once

#include "agent/daemon/api_call.hpp"

namespace acc::agent::daemon {

/// GET /v1/events: those that are kept, or all from then on as server-sent events.
boost::asio::awaitable<HttpReply> serve_events(ApiContext& api, ApiCall call);

}  // namespace acc::agent::daemon
