#pragma once

#include "agent/daemon/api_call.hpp"

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace acc::agent::daemon {

/// What an agent's status says of a running job, as far as metrics show it.
struct JobFigures {
  JobId id;
  double round = 0;
  double restarts = 0;
  double running = 0;
  double exited = 0;
  double rss_bytes = 0;
  double cpu_s = 0;
  /// Of its workers here that sent heartbeats: the one with the fewest steps, the slowest, the one
  /// that has been silent longest. None did: nothing.
  std::optional<double> step;
  std::optional<double> steps_per_second;
  std::optional<double> heartbeat_age_s;
  std::optional<double> goodput;  ///< nothing: an older agent's status hasn't it
  double waiting_s = 0;
  double restarting_s = 0;
  std::optional<double> lost_work_s;
};

/// From an agent's reply to {"do": "status"}; nothing if it isn't one (pure).
[[nodiscard]] std::optional<JobFigures> figures_of(JobId id, std::string_view status);

/// Prometheus' text of the node and of those jobs (pure). @param unanswered  running jobs without
/// figures
[[nodiscard]] std::string encode_metrics(const NodeFacts& node, const std::vector<JobRecord>& jobs,
                                         const std::vector<JobFigures>& figures,
                                         std::size_t unanswered);

/// GET /metrics: of all jobs that the caller may see.
boost::asio::awaitable<HttpReply> serve_metrics(ApiContext& api, ApiCall call);

}  // namespace acc::agent::daemon
