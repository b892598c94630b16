#include "agent/agent_loop.hpp"
#include "agent/coordinated_job.hpp"
#include "agent/fanout/orders.hpp"
#include "agent/job_metrics.hpp"
#include "agent/metrics_server.hpp"
#include "agent/output/worker_stream.hpp"
#include "common/host_name.hpp"

// What the loop tells of the job's course, for --events and --metrics.
namespace acc::agent {

namespace {

constexpr Millis kEventPatience{2'000};

}  // namespace

void AgentLoop::open_events() {
  const bool is_followed = plan_.life_line && plan_.life_line->wants_events;
  if (plan_.events_file.empty() && !is_followed) return;
  if (!plan_.events_file.empty()) {
    event_log_ =
        std::make_unique<EventLog>(io_, plan_.events_file, plan_.events_size, plan_.output.patience,
                                   [this](const Losses& losses) { messages_.degraded(losses); });
  }
  const auto put = [this, is_followed](std::string_view line) {
    if (event_log_) event_log_->write(line);
    if (is_followed) output_.say(encode(HostEvent{std::string{line}}, plan_.life_line->token));
  };
  events_.open(put, job_id_, job_ ? job_->node_name() : host_name());
  events_.job_started(plan_, guardian_.pid);
}

// What can't listen is told, and the job goes on: figures are less than the job itself.
void AgentLoop::open_metrics() {
  if (!plan_.metrics) return;
  output_.count_output();
  metrics_server_ = std::make_unique<MetricsServer>(io_, [this] { return metrics(); });
  const auto url = metrics_server_->listen(plan_.metrics->host, plan_.metrics->port);
  if (url) return messages_.note("metrics at " + *url);
  metrics_server_.reset();
  messages_.warning("--metrics: " + url.error().what + "; the job runs without metrics");
}

std::string AgentLoop::metrics() {
  JobMetrics job;
  job.view = view();
  job.counts = events_.counts();
  const auto age = clock_now() - began_;
  job.start_time_s =
      std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch() - age)
          .count();
  job.is_on_several_nodes = static_cast<bool>(job_);
  job.is_connected = group_.is_connected;
  const auto totals = output_.totals();
  job.output_bytes = totals.bytes;
  job.output_lines = totals.lines;
  job.losses = output_.losses();
  if (auto lost = event_log_ ? event_log_->losses() : std::nullopt)
    job.losses.push_back(std::move(*lost));
  job.checks_health = health_ || clock_;
  if (health_) job.findings = health_->findings();
  if (clock_) job.findings.push_back(*clock_);
  return to_metrics(job);
}

void AgentLoop::note_round_started() {
  events_.round_started({.round = group_.round,
                         .world_size = place_ ? place_->world_size : plan_.world_size,
                         .nodes = place_ ? place_->nodes : 1,
                         .node_rank = place_ ? place_->node_rank : NodeRank{0},
                         .restarts = group_.ledger.restarts,
                         .reason = restart_reason_},
                        workers_.records());
  check_at_interval();
  if (!job_ || (!events_.is_open() && !metrics_server_)) return;
  job_->table([this](const std::vector<rendezvous::TableRow>& rows) {
    std::vector<control::NodeView> table;
    table.reserve(rows.size());
    for (const auto& row : rows) table.push_back({row.node, row.host, row.first_rank, row.slots});
    events_.nodes(table);
  });
}

// The file gets a moment for the last lines: what it doesn't take by then is lost, and reported.
void AgentLoop::note_end(JobReport& report) {
  events_.job_ended(report);
  if (!event_log_) return;
  event_log_->finish({kEventPatience, kEventPatience});
  if (auto lost = event_log_->losses()) report.losses.push_back(std::move(*lost));
}

}  // namespace acc::agent
