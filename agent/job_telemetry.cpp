#include "agent/job_telemetry.hpp"

#include "agent/fanout/event_mark.hpp"
#include "agent/job_status.hpp"
#include "agent/node_health.hpp"
#include "agent/output/output_hub.hpp"
#include "agent/output/worker_stream.hpp"
#include "agent/round_terms.hpp"
#include "agent/user_messages.hpp"

#include <chrono>
#include <utility>

namespace acc::agent {

namespace {

constexpr Millis kEventPatience{2'000};

}  // namespace

bool ProgressRhythm::is_due(Round round, bool has_rate, Instant now) {
  const bool is_now = round_ != round || now - told_ >= kPeriod || (has_rate && !had_rate_);
  if (!is_now) return false;
  round_ = round;
  told_ = now;
  had_rate_ = has_rate;
  return true;
}

void JobTelemetry::open(const std::string& job_id, std::function<std::string()> node,
                        pid_t guardian) {
  const auto name = node();
  open_events(job_id, std::move(node), guardian);
  open_metrics(name);
}

void JobTelemetry::open_events(const std::string& job_id, std::function<std::string()> node,
                               pid_t guardian) {
  const auto& plan = parts_.plan;
  const bool is_followed = plan.life_line && plan.life_line->wants_events;
  if (plan.events_file.empty() && !is_followed) return;
  if (!plan.events_file.empty()) {
    log_ = std::make_unique<EventLog>(
        parts_.io, plan.events_file, plan.events_size, plan.output.patience,
        [this](const Losses& losses) { parts_.messages.degraded(losses); });
  }
  const auto put = [this, is_followed](std::string_view line) {
    if (log_) log_->write(line);
    if (!is_followed) return;
    const auto mark = event_mark(line, parts_.plan.life_line->token);
    if (!mark.empty()) parts_.output.say(mark);
  };
  events_.open(put, job_id, std::move(node));
  events_.job_started(plan, guardian);
}

// What can't listen is told, and the job goes on: figures are less than the job itself.
void JobTelemetry::open_metrics(const std::string& node) {
  const auto& wanted = parts_.plan.metrics;
  if (!wanted) return;
  parts_.output.count_output();
  server_ = std::make_unique<MetricsServer>(parts_.io, [this] { return to_metrics(metrics()); });
  const auto url = server_->listen(wanted->host, wanted->port);
  // Which port each node got can't be known otherwise.
  if (url && wanted->port == 0 && parts_.group.coordinated)
    return parts_.messages.note_of_node("metrics of node " + node + " at " + *url);
  if (url) return parts_.messages.note("metrics at " + *url);
  server_.reset();
  parts_.messages.warning("--metrics: " + url.error().what + "; the job runs without metrics");
}

JobMetrics JobTelemetry::metrics() const {
  JobMetrics job;
  job.view = parts_.status.view();
  job.counts = events_.counts();
  const auto age = clock_now() - parts_.status.began();
  job.start_time_s =
      std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch() - age)
          .count();
  job.is_on_several_nodes = parts_.group.coordinated;
  job.is_connected = parts_.group.is_connected;
  const auto totals = parts_.output.totals();
  job.output_bytes = totals.bytes;
  job.output_lines = totals.lines;
  job.losses = parts_.output.losses();
  if (auto lost = log_ ? log_->losses() : std::nullopt) job.losses.push_back(std::move(*lost));
  job.checks_health = parts_.health.is_known();
  job.findings = parts_.health.findings();
  return job;
}

void JobTelemetry::round_started(const RoundTerms& terms,
                                 const std::vector<WorkerRecord>& workers) {
  events_.round_started({.round = parts_.group.round,
                         .world_size = terms.world_size(),
                         .nodes = terms.nodes(),
                         .node_rank = terms.node_rank(),
                         .restarts = parts_.group.ledger.restarts,
                         .reason = terms.restart_reason()},
                        workers);
}

void JobTelemetry::progress(Round round, const std::vector<WorkerProgress>& workers) {
  if (!events_.is_open() || workers.empty()) return;
  const auto& slowest = slowest_of(workers);
  if (!rhythm_.is_due(round, slowest.steps_per_second.has_value(), clock_now())) return;
  events_.progress(round, {slowest.rank, slowest.step, slowest.steps_per_second});
}

// The file gets a moment for the last lines: what it doesn't take by then is lost, and reported.
void JobTelemetry::settle(JobReport& report) {
  if (!log_) return;
  is_file_stuck_ = !log_->finish({kEventPatience, kEventPatience});
  if (auto lost = log_->losses()) report.losses.push_back(std::move(*lost));
}

void JobTelemetry::finish(JobReport& report) {
  events_.job_ended(report);
  if (!log_) return;
  const Millis patience = is_file_stuck_ ? Millis{0} : kEventPatience;
  log_->finish({patience, patience});
  auto lost = log_->losses();
  if (!lost) return;
  std::erase_if(report.losses, [&](const Losses& one) { return one.where == lost->where; });
  report.losses.push_back(std::move(*lost));
}

}  // namespace acc::agent
