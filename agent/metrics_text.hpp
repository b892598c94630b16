#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>

/// Metrics in Prometheus' text format, and the table of all of them (pure). The tables in
/// docs/metrics.md are made from it.
namespace acc::agent {

enum class MetricKind { gauge, counter };

struct MetricRow {
  std::string_view name;
  MetricKind kind;
  std::string_view labels;  ///< separated by spaces
  std::string_view help;
};

/// Of both.
inline constexpr std::array kCommonMetrics{
    MetricRow{"acc_build_info", MetricKind::gauge, "version", "Always 1."},
};

/// Of acc-launch --metrics: one job, seen from this node.
inline constexpr std::array kLaunchMetrics{
    MetricRow{"acc_job_info", MetricKind::gauge, "job node", "Always 1."},
    MetricRow{"acc_job_state", MetricKind::gauge, "state",
              "1 for the state that the job is in on this node, 0 for the others."},
    MetricRow{"acc_job_start_time_seconds", MetricKind::gauge, "",
              "Unix time at which the agent started."},
    MetricRow{"acc_job_round", MetricKind::gauge, "", "Number of the current round, from 0."},
    MetricRow{"acc_job_restarts_total", MetricKind::counter, "", "Restarts of the job so far."},
    MetricRow{"acc_job_max_restarts", MetricKind::gauge, "", "Restarts that the job may have."},
    MetricRow{"acc_job_world_size", MetricKind::gauge, "", "Workers in the whole job."},
    MetricRow{"acc_job_nodes", MetricKind::gauge, "", "Nodes of the current round."},
    MetricRow{"acc_job_nodes_joined_total", MetricKind::counter, "",
              "Nodes that got a part in a round and had none in the one before."},
    MetricRow{"acc_job_nodes_lost_total", MetricKind::counter, "",
              "Nodes that had a part in a round and none in the one after."},
    MetricRow{"acc_node_rank", MetricKind::gauge, "", "Number of this node in the current round."},
    MetricRow{"acc_node_rounds_total", MetricKind::counter, "",
              "Rounds whose workers were started on this node."},
    MetricRow{"acc_node_failures_total", MetricKind::counter, "",
              "Rounds in which a worker of this node failed."},
    MetricRow{"acc_node_start_failures_total", MetricKind::counter, "",
              "Rounds whose workers could not be started on this node."},
    MetricRow{"acc_node_workers", MetricKind::gauge, "state",
              "Workers of the current round on this node, running or exited."},
    MetricRow{"acc_node_workers_ended_total", MetricKind::counter, "result",
              "Workers that ended on this node: succeeded, failed, or stopped by us."},
    MetricRow{"acc_node_health_findings", MetricKind::gauge, "severity",
              "What the last health check of this node found, by severity."},
    MetricRow{"acc_job_goodput_ratio", MetricKind::gauge, "",
              "Share of the job's time that was of use, 0 to 1, as this node saw it."},
    MetricRow{"acc_job_lost_seconds_total", MetricKind::counter, "cause",
              "Time of the job that was of no use: waiting for the first start, restarts, and lost "
              "steps."},
    MetricRow{"acc_rendezvous_connected", MetricKind::gauge, "",
              "1 while this node is connected to the coordinator of a job on several nodes."},
    MetricRow{"acc_worker_resident_memory_bytes", MetricKind::gauge, "rank",
              "Resident memory of a worker's own process."},
    MetricRow{"acc_worker_cpu_seconds_total", MetricKind::counter, "rank",
              "Processor time of a worker's own process, user and system."},
    MetricRow{"acc_worker_step", MetricKind::gauge, "rank", "Step of a worker's last heartbeat."},
    MetricRow{"acc_worker_steps_per_second", MetricKind::gauge, "rank",
              "Steps per second of a worker, over its last steps."},
    MetricRow{"acc_worker_heartbeat_age_seconds", MetricKind::gauge, "rank",
              "Time since a worker's last heartbeat."},
    MetricRow{"acc_output_bytes_total", MetricKind::counter, "",
              "Bytes that workers of this node wrote to captured streams."},
    MetricRow{"acc_output_lines_total", MetricKind::counter, "",
              "Lines that workers of this node wrote to captured streams."},
    MetricRow{"acc_output_dropped_bytes_total", MetricKind::counter, "destination",
              "Bytes that a destination of output did not take."},
    MetricRow{"acc_output_dropped_lines_total", MetricKind::counter, "destination",
              "Lines that a destination of output did not take."},
};

/// Of the daemon's /metrics: the node, and the jobs that the caller may see.
inline constexpr std::array kDaemonMetrics{
    MetricRow{"acc_daemon_jobs", MetricKind::gauge, "state", "Jobs of the daemon by state."},
    MetricRow{"acc_daemon_slots", MetricKind::gauge, "state", "Slots of the node, free or taken."},
    MetricRow{"acc_daemon_gpus", MetricKind::gauge, "state", "GPUs of the node, free or taken."},
    MetricRow{"acc_daemon_drained", MetricKind::gauge, "", "1 while the node takes no jobs."},
    MetricRow{"acc_daemon_job_starts_total", MetricKind::counter, "job",
              "Guardians that were started for a job that hasn't ended."},
    MetricRow{"acc_daemon_job_round", MetricKind::gauge, "job",
              "Number of the current round of a running job."},
    MetricRow{"acc_daemon_job_restarts_total", MetricKind::counter, "job",
              "Restarts of a running job's workers so far."},
    MetricRow{"acc_daemon_job_workers", MetricKind::gauge, "job state",
              "Workers of a running job on this node, running or exited."},
    MetricRow{"acc_daemon_job_resident_memory_bytes", MetricKind::gauge, "job",
              "Resident memory of a running job's worker processes on this node."},
    MetricRow{"acc_daemon_job_cpu_seconds_total", MetricKind::counter, "job",
              "Processor time of the worker processes of a running job's current round here."},
    MetricRow{"acc_daemon_job_goodput_ratio", MetricKind::gauge, "job",
              "Share of a running job's time that was of use, 0 to 1, as this node saw it."},
    MetricRow{
        "acc_daemon_job_lost_seconds_total", MetricKind::counter, "job cause",
        "Time of a running job that was of no use: waiting for the first start, restarts, and "
        "lost steps."},
    MetricRow{
        "acc_daemon_job_step", MetricKind::gauge, "job",
        "Step of the last heartbeat of the running job's worker here that has done the fewest."},
    MetricRow{"acc_daemon_job_steps_per_second", MetricKind::gauge, "job",
              "Steps per second of a running job's slowest worker here."},
    MetricRow{"acc_daemon_job_heartbeat_age_seconds", MetricKind::gauge, "job",
              "Longest time since the last heartbeat of a running job's worker here."},
    MetricRow{"acc_daemon_jobs_unanswered", MetricKind::gauge, "",
              "Running jobs whose agents were not asked, or did not answer in time."},
};

/// Number of a row, by its name: a misspelt name does not compile.
struct MetricId {
  const MetricRow* row = nullptr;
  template <std::size_t N>
  consteval bool find(const std::array<MetricRow, N>& rows, std::string_view name) {
    for (const auto& one : rows) {
      if (one.name != name) continue;
      row = &one;
      return true;
    }
    return false;
  }
  consteval MetricId(const char* name) {  // NOLINT(google-explicit-constructor)
    // Not by a look at the pointer: with sanitizers GCC 12 takes that for no constant.
    const bool is_known =
        find(kCommonMetrics, name) || find(kLaunchMetrics, name) || find(kDaemonMetrics, name);
    if (!is_known) throw "no such metric";
  }
};

class MetricsText {
 public:
  using Labels = std::initializer_list<std::string_view>;  ///< values, in the row's order

  /// A metric's samples stand together: begin() writes its help and type, then add() each sample.
  MetricsText& begin(MetricId id);
  MetricsText& add(Labels values, double value);
  MetricsText& one(MetricId id, double value) { return begin(id).add({}, value); }
  [[nodiscard]] std::string take() { return std::exchange(text_, {}); }

 private:
  const MetricRow* row_ = nullptr;
  std::string text_;
};

inline constexpr std::string_view kMetricsContentType = "text/plain; version=0.0.4; charset=utf-8";

}  // namespace acc::agent
