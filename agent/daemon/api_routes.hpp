#pragma once

#include "agent/daemon/api_call.hpp"

#include <boost/asio/awaitable.hpp>

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace acc::agent::daemon {

enum class MayCall {
  every_user,  ///< what it sees and changes is limited by Jobs to its own
  operators,   ///< root and the daemon's user
};

enum class BodyUse { none, optional, required };

/// One row of the API: all that is known of a method and a path.
struct Route {
  std::string_view method;
  std::string_view path;  ///< "/v1/jobs/{id}/stop"; {path} at the end: one segment or more
  MayCall may_call;
  BodyUse body;
  std::string_view queries;  ///< names of the query, separated by spaces; kAnyQuery
  unsigned success;
  std::string_view errors;  ///< statuses besides those of every route (kCommonErrors)
  boost::asio::awaitable<HttpReply> (*handle)(ApiContext&, ApiCall);
};

/// The daemon that the request is passed on to knows the names.
inline constexpr std::string_view kAnyQuery = "*";

/// What any request may be answered with: by the parser, the limits, or a bug.
inline constexpr std::string_view kCommonErrors = "400 408 413 417 431 500 503 505";

[[nodiscard]] std::span<const Route> routes();

struct RouteMatch {
  const Route* route = nullptr;
  JobId id;
  std::string allowed;  ///< without a route: methods that the path has ("GET, HEAD"), or none
};
/// HEAD finds the row of GET.
[[nodiscard]] RouteMatch match(std::string_view method, const std::vector<std::string>& segments);

/// Finds the route, checks what is the same for all, and calls it.
boost::asio::awaitable<HttpReply> answer(ApiContext& api, Principal who, HttpRequest request);

}  // namespace acc::agent::daemon
