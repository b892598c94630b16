#include "agent/transitions.hpp"

#include <algorithm>
#include <csignal>

namespace acc::agent::transitions {

namespace {

constexpr Millis kStartRetryWindow{5'000};
constexpr Millis kStartRetryDelay{250};
// Python may swallow a Ctrl-C while it starts. What lived for so short a time has nothing to save:
// it gets SIGTERM soon.
constexpr Millis kYoung{5'000};
constexpr Millis kSwallowed{3'000};
// Python's resource tracker, a compiler's server: helpers that exit when they see that their worker
// has exited. They need some milliseconds, more on a busy machine.
constexpr Millis kLeftOverPatience{150};

}  // namespace

bool is_worth_a_retry(const StartFailure& failure) {
  return is_transient(failure.errnum) && failure.refusal.empty();
}

StopRequest stop_of(const GroupState& group) {
  return stop_request(group.stop_signal, group.stop.preempt_signals);
}

FailedRound failed_round(const GroupState& group, const Emptied& e) {
  const auto& failure = *group.first_failure;
  const auto lived = std::chrono::duration_cast<Millis>(failure.when - group.round_started);
  return {failure.status, lived, e.progress, e.jitter_sample, failure.is_final};
}

void append(Actions& actions, const Actions& more) {
  actions.insert(actions.end(), more.begin(), more.end());
}

// ---- ends ----

Actions finish(GroupState& group, const End& end) {
  group.phase = Phase::finished;
  Actions actions{DisarmTimer{Timer::grace}, DisarmTimer{Timer::give_up},
                  DisarmTimer{Timer::backoff}, DisarmTimer{Timer::left_over}};
  if (group.coordinated) {
    actions.emplace_back(DisarmTimer{Timer::close_timeout});
    actions.emplace_back(DisarmTimer{Timer::startup});
  }
  actions.emplace_back(Finish{end});
  return actions;
}

Actions finish_stopped(GroupState& group) {
  if (group.guardian_lost)
    return finish(group, {Outcome::guardian_lost, to_int(ExitCode::agent_lost)});
  return finish(group, end_by_signal(stop_of(group)));
}

// ---- starts ----

Actions start(GroupState& group) {
  group.phase = Phase::idle;
  group.starting = true;
  group.first_failure.reset();
  group.held_failure.reset();
  group.start_failure.reset();
  group.terminal.interrupted_at.reset();
  group.terminal.held_failure.reset();
  group.term_sent = false;
  group.left_overs_due = false;
  if (group.restart_is_due) ++group.ledger.restarts;
  group.restart_is_due = false;
  return {StartRound{group.round}};
}

Actions abort_start(GroupState& group) {
  group.starting = false;
  group.phase = Phase::killing;
  return {KillAll{}, ArmTimer{Timer::give_up, group.stop.give_up}};
}

std::optional<Actions> retry_start(GroupState& group, Instant now) {
  Actions actions;
  if (!group.start_retry_until) {
    group.start_retry_until = now + kStartRetryWindow;
    actions.emplace_back(TellStartRetry{*group.start_failure, kStartRetryWindow});
  }
  if (now >= *group.start_retry_until) return std::nullopt;
  group.phase = Phase::backing_off;
  actions.emplace_back(ArmTimer{Timer::backoff, kStartRetryDelay});
  return actions;
}

// ---- from running to an end ----

void await_end(GroupState& group, Actions& actions, Millis grace, Instant now) {
  group.phase = Phase::stopping;
  group.grace.armed = grace;
  group.grace.ends = now + grace;
  actions.emplace_back(ArmTimer{Timer::grace, grace});
}

void ask_to_end(GroupState& group, Actions& actions, Millis grace, Instant now) {
  group.term_sent = true;
  actions.emplace_back(SignalWorkers{SIGTERM});
  if (group.alive > 0) {
    actions.emplace_back(TerminateEscaped{});
  } else {
    await_left_overs(group, actions, grace);
  }
  await_end(group, actions, grace, now);
}

Millis time_for_signal(const GroupState& group, int signo, Millis grace, Instant now) {
  const bool may_be_swallowed = signo == SIGINT && now - group.round_started < kYoung;
  return may_be_swallowed ? std::min(grace, kSwallowed) : grace;
}

Millis left_over_time(Millis grace) { return std::min(kLeftOverPatience, grace / 2); }

void await_left_overs(const GroupState& group, Actions& actions, Millis grace) {
  if (group.left_overs_due) {
    actions.emplace_back(TerminateEscaped{});
  } else {  // asked before they are killed, however short the grace
    actions.emplace_back(ArmTimer{Timer::left_over, left_over_time(grace)});
  }
}

// The last worker exited when the grace was almost over: what it left is asked all the same.
Actions hurry_left_overs(GroupState& group) {
  const Millis time = left_over_time(group.grace.armed);
  if (group.left_overs_due || time <= Millis{0}) return kill(group, group.grace.armed);
  group.left_overs_due = true;
  return {DisarmTimer{Timer::left_over}, TerminateEscaped{}, ArmTimer{Timer::grace, time}};
}

Actions stop_by_signal(GroupState& group, int signo, Instant now) {
  group.stopped_by_signal = true;
  group.term_sent = signo == SIGTERM;
  const bool preempted = stop_of(group).is_preemption;
  const Millis grace = preempted ? group.stop.preempt_grace : group.stop.grace;
  Actions actions{SignalWorkers{signo}, TellStopping{signo, grace, preempted}};
  await_end(group, actions, time_for_signal(group, signo, grace, now), now);
  return actions;
}

Actions hurry_by_signal(GroupState& group, int signo, Instant now) {
  if (group.phase != Phase::stopping) return {};
  Actions actions;
  if (signo == SIGTERM && !group.term_sent) {  // the scheduler means it now
    ask_to_end(group, actions, group.stop.grace, now);
    return actions;
  }
  // Schedulers repeat SIGTERM; only a person at the terminal means "faster" by asking again.
  if (signo != SIGINT || group.interrupts < 2) return {};
  if (group.interrupts > 2) return kill(group, Millis{0});
  const Millis grace = std::min(group.stop.grace, kHurriedGrace);
  actions.emplace_back(TellHurry{SIGTERM, grace});
  ask_to_end(group, actions, grace, now);
  return actions;
}

Actions kill(GroupState& group, Millis after) {
  group.phase = Phase::killing;
  return {DisarmTimer{Timer::grace}, TellKilling{after}, KillAll{},
          ArmTimer{Timer::give_up, group.stop.give_up}};
}

Actions shorten_grace(GroupState& group, Millis grace, Instant now) {
  if (group.phase != Phase::stopping) return {};
  if (grace <= Millis{0}) return kill(group, Millis{0});
  Actions actions;
  if (!group.term_sent && group.alive > 0) {
    ask_to_end(group, actions, grace, now);
  } else if (now + grace < group.grace.ends) {
    await_end(group, actions, grace, now);
  }
  return actions;
}

}  // namespace acc::agent::transitions
