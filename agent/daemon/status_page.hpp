#pragma once

#include "agent/daemon/http_message.hpp"

#include <optional>

namespace acc::agent::daemon {

/// The reply to a request for a file of the status page; nothing if it is for something else. The
/// files hold no secret and are served without a token: what the page shows it reads from the API,
/// with the session of its browser. docs/decisions/0041-status-page.md
[[nodiscard]] std::optional<HttpReply> page_reply(const HttpRequest& request);

}  // namespace acc::agent::daemon
