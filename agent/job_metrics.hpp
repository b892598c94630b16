#pragma once

#include "agent/control_protocol.hpp"
#include "agent/job_events.hpp"
#include "agent/output/losses.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace acc::agent {

/// What a scrape of acc-launch --metrics shows; filled by the agent for each scrape.
struct JobMetrics {
  control::JobView view;  ///< state, round, ledger, goodput, workers with usage and progress
  JobEvents::Counts counts;
  double start_time_s = 0;  ///< Unix time
  bool is_on_several_nodes = false;
  bool is_connected = false;  ///< to a coordinator
  std::uint64_t output_bytes = 0;
  std::uint64_t output_lines = 0;
  std::vector<Losses> losses;
  bool checks_health = false;
  std::vector<health::Finding> findings;
};

/// Prometheus' text format.
[[nodiscard]] std::string to_metrics(const JobMetrics& job);

}  // namespace acc::agent
