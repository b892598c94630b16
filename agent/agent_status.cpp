#include "agent/agent_loop.hpp"
#include "agent/status_text.hpp"

#include <algorithm>
#include <utility>

// The status line below the workers' output on a terminal. Where there is none nothing here runs.
namespace acc::agent {

namespace {

// What is over sooner isn't worth a line.
constexpr Millis kStatusDelay{500};
constexpr Millis kStatusPeriod{1'000};
constexpr Millis kProgressPeriod{10'000};  // of events

}  // namespace

void AgentLoop::open_status() {
  const auto& output = plan_.output;
  shows_status_ = output_.can_show_status() && !output.quiet && !console_.no_color &&
                  output.color != Choice::no && !output.is_reported_elsewhere;
  shows_progress_ = shows_status_ && !output_.is_bypassed();
  if (shows_status_) follow_status();
}

// After each change of the phase.
void AgentLoop::follow_status() {
  in_phase_since_ = clock_now();
  // Not while workers run, until they have sent heartbeats: their first line must find a clean
  // terminal.
  progress_line_.clear();
  output_.set_status("");
  draw_status_after(kStatusDelay);
}

void AgentLoop::draw_status_after(Millis delay) {
  status_timer_.cancel();
  if (finish_ || (group_.phase == Phase::running && progress_line_.empty())) return;
  status_timer_.expires_after(delay);
  status_timer_.async_wait([this](boost::system::error_code cancelled) {
    if (cancelled || finish_) return;
    output_.set_status(status_now());
    draw_status_after(kStatusPeriod);
  });
}

void AgentLoop::show_progress() {
  if (group_.phase != Phase::running || (!shows_progress_ && !events_.is_open())) return;
  std::vector<WorkerProgress> workers;
  for (const auto& record : workers_.records()) {
    if (record.pid == 0 || record.status) continue;
    auto progress = progress_of(record);
    if (!progress) continue;
    workers.push_back({record.rank, progress->step, progress->steps_per_second,
                       progress->seconds_since_heartbeat, std::move(progress->section)});
  }
  note_progress(workers);
  if (!shows_progress_) return;
  const bool was_silent = progress_line_.empty();
  progress_line_ = progress_text(workers);
  if (progress_line_.empty()) output_.set_status("");
  if (was_silent && !progress_line_.empty()) draw_status_after(kStatusDelay);
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

std::string AgentLoop::status_now() const {
  constexpr std::size_t kUnknownWidth = 80;
  const auto now = clock_now();
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
  facts.in_phase = std::chrono::duration_cast<Millis>(now - in_phase_since_);
  const auto due = group_.phase == Phase::backing_off
                       ? timers_[static_cast<std::size_t>(Timer::backoff)].expiry()
                       : group_.grace_ends;
  facts.kills_next = group_.term_sent || group_.alive == 0;  // else SIGTERM comes first
  facts.left = std::max(Millis{0}, std::chrono::duration_cast<Millis>(due - now));
  facts.progress = progress_line_;
  const std::size_t columns = output_.columns() == 0 ? kUnknownWidth : output_.columns();
  return status_text(facts, columns - 1);
}

}  // namespace acc::agent
