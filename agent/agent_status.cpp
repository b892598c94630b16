#include "agent/agent_loop.hpp"
#include "agent/status_text.hpp"

#include <algorithm>
#include <utility>

// What the status line on a terminal and --events say of running workers.
namespace acc::agent {

namespace {

constexpr Millis kProgressPeriod{10'000};  // of events

}  // namespace

void AgentLoop::open_status() {
  const auto& output = plan_.output;
  status_line_.open(!output.quiet && !console_.no_color && output.color != Choice::no &&
                        !output.is_reported_elsewhere,
                    group_.phase);
}

void AgentLoop::show_progress() {
  if (group_.phase != Phase::running || (!status_line_.shows_progress() && !events_.is_open())) return;
  std::vector<WorkerProgress> workers;
  for (const auto& record : workers_.records()) {
    if (record.pid == 0 || record.status) continue;
    auto progress = progress_of(record);
    if (!progress) continue;
    workers.push_back({record.rank, progress->step, progress->steps_per_second,
                       progress->seconds_since_heartbeat, std::move(progress->section)});
  }
  note_progress(workers);
  if (status_line_.shows_progress()) status_line_.show_progress(progress_text(workers));
}

// Also when the rate is known for the first time.
void AgentLoop::note_progress(const std::vector<WorkerProgress>& workers) {
  if (!events_.is_open() || workers.empty()) return;
  const auto& slowest = slowest_of(workers);
  const auto now = clock_now();
  const bool has_rate = slowest.steps_per_second.has_value();
  const bool is_due = progress_told_.round != group_.round ||
                      now - progress_told_.when >= kProgressPeriod ||
                      (has_rate && !progress_told_.had_rate);
  if (!is_due) return;
  progress_told_ = {group_.round, now, has_rate};
  events_.progress(group_.round, {slowest.rank, slowest.step, slowest.steps_per_second});
}

StatusFacts AgentLoop::status_facts() const {
  StatusFacts facts;
  facts.phase = group_.phase;
  facts.is_coordinated = group_.coordinated;
  facts.ends_for_good = group_.stop_signal != 0 || group_.closed ||
                        (group_.stop_ordered && group_.stop_ordered->for_good);
  facts.alive = group_.alive;
  facts.workers = group_.size;
  facts.ledger = group_.ledger;
  facts.max_restarts = max_restarts_;
  facts.reason = restart_reason_;
  const auto due = group_.phase == Phase::backing_off
                       ? timers_[static_cast<std::size_t>(Timer::backoff)].expiry()
                       : group_.grace_ends;
  facts.kills_next = group_.term_sent || group_.alive == 0;  // else SIGTERM comes first
  facts.left = std::max(Millis{0}, std::chrono::duration_cast<Millis>(due - clock_now()));
  return facts;
}

}  // namespace acc::agent
