#pragma once

#include "launcher/ctl/launches.hpp"

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

/// What is shown of one job, from the answers of its nodes (pure). What answers is foreign: a field
/// that is missing or of another kind counts as absent, and all text is made plain.
namespace acc::ctl::top {

/// What one node answered. A job of several nodes has a part on each.
struct PartAnswer {
  enum class How {
    answered,
    silent,  ///< nothing answers, or not in time: what was known of it is kept
    gone,    ///< the job isn't there any more
  };
  std::string node{};  ///< as the user named it; empty: the answer says it
  How how = How::silent;
  bool is_of_service = false;  ///< the body is that of GET /v1/jobs/ID; else an agent's status
  std::string body{};
  std::string why{};  ///< of a silent one
};

struct GpuFigures {
  std::int64_t index = 0;
  std::optional<double> percent;
  std::int64_t memory_used = 0;
  std::int64_t memory_total = 0;
};

struct NodeFigures {
  std::string name;
  std::string state;  ///< of the job's part there
  std::string why{};  ///< why nothing is known; empty: its ranks are current
  std::int64_t first_rank = 0;
  std::int64_t slots = 0;
  bool is_watched = true;  ///< false: another machine's, of which only the ranks are known
  std::vector<GpuFigures> gpus{};
};

struct RankFigures {
  enum class Life { starting, running, succeeded, failed };

  std::size_t node = 0;  ///< index in JobFigures::nodes
  std::int64_t rank = 0;
  std::int64_t local_rank = 0;
  std::int64_t pid = 0;
  Life life = Life::running;
  std::string end;  ///< "exit 3", "SIGKILL"; empty: it lives
  double seconds = 0;
  std::optional<std::int64_t> step{};
  std::optional<double> steps_per_second{};
  double heartbeat_age_s = 0;
  std::string section{};
  std::optional<std::int64_t> rss_bytes{};
  std::optional<double> cpu_s{};
  std::optional<double> cpu_percent{};  ///< between two answers; 100: one core
  std::vector<std::int64_t> gpu_indices{};
  std::optional<double> gpu_percent{};  ///< of its GPUs, on average
  std::string last_line{};
  /// The figures that cpu_percent counts from.
  double cpu_base_s = 0;
  double base_seconds = 0;
};

struct JobFigures {
  JobRow row;
  bool is_over = false;
  std::string gone;  ///< why no more is known of it; empty: it is there
  std::int64_t round = 0;
  std::int64_t restarts_used = 0;
  std::int64_t max_restarts = 0;
  std::int64_t world_size = 0;
  std::string restart_reason;
  std::string log_folder;
  std::vector<NodeFigures> nodes;
  std::vector<RankFigures> ranks;
};

/// @param before  the last result for this job; null: none
[[nodiscard]] JobFigures figures_of(const JobRow& known, std::span<const PartAnswer> answers,
                                    const JobFigures* before, std::int64_t now_ms);

/// Sums of a job, or of one node of it.
struct Totals {
  std::size_t ranks = 0;
  std::size_t running = 0;
  std::optional<std::int64_t> least_step, most_step;
  std::optional<double> steps_per_second;  ///< the least: all wait for it
  std::int64_t rss_bytes = 0;
  std::optional<double> cpu_percent;
};
[[nodiscard]] Totals totals_of(const JobFigures& job, std::optional<std::size_t> node = {});

}  // namespace acc::ctl::top
