#include "agent/agent_loop.hpp"
#include "agent/coordinated_job.hpp"
#include "common/host_name.hpp"

// What the loop tells of the job's course for --events.
namespace acc::agent {

namespace {

constexpr Millis kEventPatience{2'000};

}  // namespace

void AgentLoop::open_events() {
  if (plan_.events_file.empty()) return;
  event_log_ =
      std::make_unique<EventLog>(io_, plan_.events_file, plan_.output.patience,
                                 [this](const Losses& losses) { messages_.degraded(losses); });
  events_.open([this](std::string_view line) { event_log_->write(line); }, job_id_,
               job_ ? job_->node_name() : host_name());
  events_.job_started(plan_, guardian_.pid);
}

void AgentLoop::note_round_started() {
  events_.round_started({.round = group_.round,
                         .world_size = place_ ? place_->world_size : plan_.world_size,
                         .nodes = place_ ? place_->nodes : 1,
                         .node_rank = place_ ? place_->node_rank : NodeRank{0},
                         .restarts = group_.ledger.restarts,
                         .reason = restart_reason_},
                        workers_.records());
  if (!job_ || !events_.is_open()) return;
  job_->table([this](const std::vector<rendezvous::TableRow>& rows) {
    std::vector<control::NodeView> table;
    table.reserve(rows.size());
    for (const auto& row : rows) table.push_back({row.node, row.host, row.first_rank, row.slots});
    events_.nodes(table);
  });
}

// The file gets a moment for the last lines: what it doesn't take by then is lost, and reported.
void AgentLoop::note_end(JobReport& report) {
  if (!event_log_) return;
  events_.job_ended(report);
  event_log_->finish({kEventPatience, kEventPatience});
  if (auto lost = event_log_->losses()) report.losses.push_back(std::move(*lost));
}

}  // namespace acc::agent
