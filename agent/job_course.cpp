#include "agent/job_course.hpp"

#include "agent/containment.hpp"
#include "agent/job_events.hpp"
#include "agent/job_recorder.hpp"
#include "agent/job_signals.hpp"
#include "agent/left_overs.hpp"
#include "agent/round_starter.hpp"
#include "agent/round_terms.hpp"
#include "agent/user_messages.hpp"
#include "rendezvous/coordinator_client.hpp"

namespace acc::agent {

JobCourse::JobCourse(const Parts& parts)
    : parts_{parts}, service_{parts.guardian}, watchdog_{parts.io, service_} {}

void JobCourse::feed_watchdog() const {
  if (service_.watchdog_period()) service_.feed_watchdog();
}

std::string JobCourse::words_for(const StartFailure& failure) const {
  return parts_.recorder.words_for(failure, parts_.starter.program());
}

std::string JobCourse::hint_for(const FailureReport& failure, const std::string& host) const {
  if (host.empty() && parts_.reader != failure.worker.local_rank) {
    if (auto hint = UserMessages::input_hint(failure); !hint.empty()) return hint;
  }
  const auto kills = parts_.recorder.oom_kills();
  if (UserMessages::names_killed_process(failure)) {
    if (auto hint = UserMessages::memory_hint(failure, kills, host); !hint.empty()) return hint;
  }
  const auto& starter = parts_.starter;
  auto hint = UserMessages::start_hint(
      failure, {starter.program(), starter.is_plain(), host, starter.master_port()});
  return hint.empty() ? UserMessages::memory_hint(failure, kills, host) : hint;
}

// ---- what the supervisor tells ----

void JobCourse::tell(const TellFailure& a) {
  auto described = parts_.recorder.describe(a.failure);
  described.no_restart = parts_.no_restart_reason(a.failure.local_rank);
  described.hint = hint_for(described, {});
  parts_.recorder.add(std::move(described));
  const auto& failure = parts_.recorder.latest();
  parts_.events.failed(failure);
  parts_.terms.set_restart_reason("rank " + std::to_string(failure.worker.rank.value()) + " " +
                                  failure.cause);
  const auto& group = parts_.group;
  const bool is_last = group.ledger.budget_used >= group.restart.max_restarts;
  if (group.size > 1 || !is_last) parts_.messages.failure(failure);
  if (!is_last && !failure.hint.empty()) parts_.messages.note(failure.hint);  // else in the report
}

void JobCourse::tell(const TellRestart& a) {
  const auto& reason = parts_.terms.restart_reason();
  parts_.messages.restart(a);
  parts_.events.restarting(a.ledger.restarts + 1, a.max_restarts, a.delay, reason);
  service_.status(restart_words(a.ledger, a.max_restarts) + " after: " + reason);
}

void JobCourse::tell(const TellStartRetry& a) {
  parts_.messages.start_retry(a, words_for(a.failure));
}

void JobCourse::tell(const TellStopping& a) {
  if (!parts_.signals.is_of_two_presses()) parts_.messages.stopping(a);
  parts_.events.stopping(a.signo, a.grace);
  service_.stopping("stopping, asked by " + signal_name(a.signo));
}

void JobCourse::tell(const TellNoRestart& a) { parts_.messages.no_restart(a); }

void JobCourse::tell(const TellHurry& a) {
  parts_.messages.hurry(a, parts_.signals.is_of_two_presses());
}

void JobCourse::tell(const TellKilling& a) {
  const auto alive = parts_.containment.left_over(LeftOvers::kNamed);
  parts_.messages.killing(a, alive);
  if (parts_.group.alive > 0) return;
  for (const auto& process : alive) parts_.recorder.add_left_over(process);
}

void JobCourse::tell(const TellRestartAsked& a) { parts_.messages.restart_asked(a); }

// ---- orders of the coordinator ----

void JobCourse::round_ordered(const rendezvous::RoundPlace& place) {
  parts_.recorder.take(place.ledger);
  if (place.ledger.restarts == 0) return;
  parts_.events.restarting(place.ledger.restarts, place.max_restarts, Millis{0}, place.reason);
  parts_.messages.announce(
      "attempt " + std::to_string(place.epoch.round.value()) + ": " + std::to_string(place.nodes) +
      (place.nodes == 1 ? " node" : " nodes") +
      // One that was asked for costs none of them.
      (place.ledger.budget_used == 0
           ? ", after: "
           : ", " + restart_words(place.ledger, place.max_restarts) + " after: ") +
      place.reason);
}

void JobCourse::stop_ordered(const rendezvous::Stop& stop, const std::string& own_name) {
  parts_.events.stop_ordered(stop.by, stop.reason);
  if (stop.why == rendezvous::Stop::Why::restart) parts_.recorder.round_failed();
  // What the next round is waited for; the former one's reason is over.
  if (stop.why != rendezvous::Stop::Why::end) parts_.terms.set_restart_reason(stop.reason);
  if (stop.by == own_name) return;
  const auto text = "stopping the workers here: " + stop.reason;
  parts_.messages.note(text);
  service_.status(text);
}

void JobCourse::note(const std::string& text, bool is_warning) {
  is_warning ? parts_.messages.warning(text) : parts_.messages.note(text);
  // Of workers that run a warning stands until its condition is over, which a note says.
  const bool is_over = !is_warning && parts_.group.phase == Phase::running;
  service_.status(is_over ? std::to_string(parts_.group.alive) + " workers running" : text);
}

// ---- workers and output ----

void JobCourse::start_failed(const StartFailure& failure) {
  parts_.events.start_failed(parts_.group.round, words_for(failure));
}

void JobCourse::round_started() {
  const auto round = parts_.group.round;
  const std::string status = std::to_string(parts_.group.size) + " workers running, attempt " +
                             std::to_string(round.value());
  std::exchange(is_ready_, true) ? service_.status(status) : service_.ready(status);
}

void JobCourse::worker_ended() {
  if (parts_.group.phase == Phase::running)
    service_.status(std::to_string(parts_.group.alive) + " workers running");
}

void JobCourse::left_overs_asked(const std::vector<LeftOver>& asked) {
  if (parts_.group.alive > 0) return;
  parts_.messages.left_over(asked);
  for (const auto& process : asked) parts_.recorder.add_left_over(process);
}

void JobCourse::output_degraded(const Losses& losses) {
  parts_.messages.degraded(losses);
  parts_.events.output_lost(losses);
  service_.status("degraded: " + losses.where + ": " + losses.why);
}

void JobCourse::job_over(Outcome outcome) const {
  service_.stopping("job over: " + std::string{to_string(outcome)});
}

}  // namespace acc::agent
