#include "agent/job_metrics.hpp"

#include "agent/metrics_text.hpp"
#include "common/version.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <functional>
#include <optional>
#include <utility>

namespace acc::agent {

namespace {

// "log files in DIR" and "events in FILE" hold a path: a label has few values.
std::string_view destination_of(const Losses& losses) {
  if (losses.where.starts_with("log files")) return "log_files";
  if (losses.where.starts_with("events")) return "events";
  return losses.where;
}

void add_job(MetricsText& text, const JobMetrics& job) {
  const auto& view = job.view;
  text.begin("acc_job_info").add({view.id, view.node}, 1);
  text.begin("acc_job_state");
  for (const auto state : control::kStates) text.add({state}, view.state == state ? 1 : 0);
  text.one("acc_job_start_time_seconds", job.start_time_s);
  text.one("acc_job_round", static_cast<double>(view.round.value()));
  text.one("acc_job_restarts_total", view.ledger.restarts);
  text.one("acc_job_max_restarts", view.max_restarts);
  text.one("acc_job_world_size", view.world_size.value());
  text.one("acc_job_nodes", view.nodes);
  const auto& goodput = view.goodput;
  const auto seconds = [](Millis time) { return std::chrono::duration<double>(time).count(); };
  text.one("acc_job_goodput_ratio", goodput.goodput());
  text.begin("acc_job_lost_seconds_total")
      .add({"waiting"}, seconds(goodput.waiting))
      .add({"restarts"}, seconds(goodput.restarting));
  if (goodput.knows_checkpoints) text.add({"lost_steps"}, seconds(goodput.lost_work));
  if (!job.is_on_several_nodes) return;
  text.one("acc_job_nodes_joined_total", static_cast<double>(job.counts.nodes_joined));
  text.one("acc_job_nodes_lost_total", static_cast<double>(job.counts.nodes_lost));
  text.one("acc_rendezvous_connected", job.is_connected ? 1 : 0);
}

void add_node(MetricsText& text, const JobMetrics& job) {
  const auto& counts = job.counts;
  const auto& workers = job.view.workers;
  const auto running = std::ranges::count_if(
      workers, [](const auto& worker) { return !worker.status && worker.pid != 0; });
  const auto exited =
      std::ranges::count_if(workers, [](const auto& worker) { return worker.status.has_value(); });
  text.one("acc_node_rank", job.view.node_rank.value());
  text.one("acc_node_rounds_total", static_cast<double>(counts.rounds));
  text.one("acc_node_failures_total", static_cast<double>(counts.failures));
  text.one("acc_node_start_failures_total", static_cast<double>(counts.start_failures));
  text.begin("acc_node_workers")
      .add({"running"}, static_cast<double>(running))
      .add({"exited"}, static_cast<double>(exited));
  text.begin("acc_node_workers_ended_total")
      .add({"succeeded"}, static_cast<double>(counts.workers_succeeded))
      .add({"failed"}, static_cast<double>(counts.workers_failed))
      .add({"stopped"}, static_cast<double>(counts.workers_stopped));
}

void add_health(MetricsText& text, const JobMetrics& job) {
  if (!job.checks_health) return;
  text.begin("acc_node_health_findings");
  for (const auto severity : {health::Severity::warning, health::Severity::unfit}) {
    const auto count = std::ranges::count(job.findings, severity, &health::Finding::severity);
    text.add({to_string(severity)}, static_cast<double>(count));
  }
}

void add_workers(MetricsText& text, const JobMetrics& job) {
  text.begin("acc_worker_resident_memory_bytes");
  for (const auto& worker : job.view.workers)
    if (worker.usage)
      text.add({std::to_string(worker.rank.value())}, static_cast<double>(worker.usage->rss_bytes));
  text.begin("acc_worker_cpu_seconds_total");
  for (const auto& worker : job.view.workers)
    if (worker.usage) text.add({std::to_string(worker.rank.value())}, worker.usage->cpu_s);
}

// Of workers that live and have sent a heartbeat; without any the metrics are absent.
void add_progress(MetricsText& text, const JobMetrics& job) {
  using Progress = control::WorkerView::Progress;
  const auto add = [&](MetricId id, const std::function<std::optional<double>(const Progress&)>& of) {
    bool has_begun = false;
    for (const auto& worker : job.view.workers) {
      const auto value = worker.status || !worker.progress ? std::nullopt : of(*worker.progress);
      if (!value) continue;
      if (!std::exchange(has_begun, true)) text.begin(id);
      text.add({std::to_string(worker.rank.value())}, *value);
    }
  };
  add("acc_worker_step", [](const Progress& p) { return static_cast<double>(p.step); });
  add("acc_worker_steps_per_second", [](const Progress& p) { return p.steps_per_second; });
  add("acc_worker_heartbeat_age_seconds",
      [](const Progress& p) { return p.seconds_since_heartbeat; });
}

void add_output(MetricsText& text, const JobMetrics& job) {
  text.one("acc_output_bytes_total", static_cast<double>(job.output_bytes));
  text.one("acc_output_lines_total", static_cast<double>(job.output_lines));
  if (job.losses.empty()) return;
  text.begin("acc_output_dropped_bytes_total");
  for (const auto& lost : job.losses)
    text.add({destination_of(lost)}, static_cast<double>(lost.bytes));
  text.begin("acc_output_dropped_lines_total");
  for (const auto& lost : job.losses)
    text.add({destination_of(lost)}, static_cast<double>(lost.lines));
}

}  // namespace

std::string to_metrics(const JobMetrics& job) {
  MetricsText text;
  text.begin("acc_build_info").add({version()}, 1);
  add_job(text, job);
  add_node(text, job);
  add_health(text, job);
  add_workers(text, job);
  add_progress(text, job);
  add_output(text, job);
  return text.take();
}

}  // namespace acc::agent
