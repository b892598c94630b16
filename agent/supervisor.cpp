#include "agent/supervisor.hpp"

#include "common/exit_codes.hpp"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <csignal>

namespace acc::agent {

namespace {

constexpr Millis kStartRetryWindow{5'000};
constexpr Millis kStartRetryDelay{250};
constexpr Millis kHurriedGrace{2'000};  // after the second Ctrl-C

bool is_stop_signal(const GroupState& group, int signo) {
  return signo == SIGTERM || signo == SIGINT || signo == SIGHUP || signo == SIGQUIT ||
         std::ranges::count(group.stop.preempt_signals, signo) != 0;
}

bool is_preemption(const GroupState& group) {
  return std::ranges::count(group.stop.preempt_signals, group.stop_signal) != 0;
}

Actions finish(GroupState& group, Verdict verdict, int exit_code) {
  group.phase = Phase::finished;
  return {DisarmTimer{Timer::grace}, DisarmTimer{Timer::give_up}, DisarmTimer{Timer::backoff},
          Finish{verdict, exit_code}};
}

Actions finish(GroupState& group, Verdict verdict, ExitCode code) {
  return finish(group, verdict, to_int(code));
}

Actions start(GroupState& group) {
  group.phase = Phase::idle;
  group.first_failure.reset();
  group.start_failure.reset();
  group.term_sent = false;
  if (group.restart_is_due) ++group.restarts;
  group.restart_is_due = false;
  return {StartRound{group.round}};
}

Actions kill(GroupState& group, Millis after) {
  group.phase = Phase::killing;
  return {DisarmTimer{Timer::grace}, TellKilling{after}, KillAll{},
          ArmTimer{Timer::give_up, group.stop.give_up}};
}

// The workers were asked to end; whoever doesn't within the grace is killed.
void await_end(GroupState& group, Actions& actions, Millis grace) {
  group.phase = Phase::stopping;
  group.armed_grace = grace;
  actions.emplace_back(ArmTimer{Timer::grace, grace});
}

// SIGTERM to the workers' groups and to those who left them.
void ask_to_end(GroupState& group, Actions& actions, Millis grace) {
  group.term_sent = true;
  actions.emplace_back(SignalWorkers{SIGTERM});
  actions.emplace_back(TermStrays{});
  await_end(group, actions, grace);
}

Actions back_off(GroupState& group, Millis delay, Actions actions) {
  group.round = Round{group.round.value() + 1};
  if (delay == Millis{0}) {
    auto next = start(group);
    actions.insert(actions.end(), next.begin(), next.end());
    return actions;
  }
  group.phase = Phase::backing_off;
  actions.emplace_back(ArmTimer{Timer::backoff, delay});
  return actions;
}

// ---- what follows a round in which nothing is left running ----

Actions after_stop(GroupState& group) {
  if (group.guardian_lost) return finish(group, Verdict::guardian_lost, ExitCode::agent_lost);
  if (is_preemption(group)) return finish(group, Verdict::preempted, ExitCode::requeue);
  return finish(group, Verdict::stopped, 128 + group.stop_signal);
}

Actions after_start_failure(GroupState& group, Instant now) {
  const auto failure = *group.start_failure;
  if (is_transient(failure.errnum)) {
    if (group.stop_signal != 0) return after_stop(group);
    Actions actions;
    if (!group.start_retry_until) {
      group.start_retry_until = now + kStartRetryWindow;
      actions.emplace_back(TellStartRetry{failure, kStartRetryWindow});
    }
    if (now < *group.start_retry_until) {
      group.phase = Phase::backing_off;
      actions.emplace_back(ArmTimer{Timer::backoff, kStartRetryDelay});
      return actions;
    }
    return finish(group, Verdict::cannot_start, ExitCode::resources);
  }
  const bool missing = failure.errnum == ENOENT || failure.errnum == ENOTDIR;
  return finish(group, Verdict::cannot_start,
                missing ? ExitCode::command_not_found : ExitCode::cannot_execute);
}

Actions after_failure(GroupState& group, const Emptied& e) {
  const auto& policy = group.restart;
  const auto& failure = *group.first_failure;
  const auto lived = std::chrono::duration_cast<Millis>(failure.when - group.round_started);
  const bool healthy = lived >= policy.healthy_after;
  const bool progress = policy.progress_file.empty() ? healthy : e.progress;

  if (in_classes(policy.never_retry, failure.status)) {
    return finish(group, Verdict::never_retry, shell_code(failure.status));
  }
  group.without_progress = progress ? 0 : group.without_progress + 1;
  if (policy.max_no_progress > 0 && group.without_progress >= policy.max_no_progress) {
    return finish(group, Verdict::no_progress, ExitCode::hopeless);
  }
  if (policy.refill_after > Millis{0}) {
    const auto refilled = static_cast<std::uint64_t>(lived / policy.refill_after);
    group.budget_used -=
        static_cast<std::uint32_t>(std::min<std::uint64_t>(refilled, group.budget_used));
  }
  if (group.budget_used >= policy.max_restarts) {
    return finish(group, Verdict::failed, shell_code(failure.status));
  }
  if (group.stop_signal != 0) return after_stop(group);  // instead of the restart
  if (healthy || progress) group.quick_failures = 0;
  const Millis delay = restart_delay(policy, group.quick_failures, e.roll);
  ++group.quick_failures;
  ++group.budget_used;
  group.restart_is_due = true;
  return back_off(group, delay, {TellRestart{group.budget_used, policy.max_restarts, delay}});
}

// ---- one function per event ----

Actions on(GroupState& group, const Began&) { return start(group); }

Actions on(GroupState& group, const RoundStarted& e) {
  group.phase = Phase::running;
  group.alive = group.size;
  group.round_started = e.now;
  group.start_retry_until.reset();
  return {};
}

Actions on(GroupState& group, const StartFailed& e) {
  group.start_failure = e.failure;
  // Those that did start know nothing yet and have nothing to save.
  Actions actions{KillAll{}};
  await_end(group, actions, group.stop.give_up);
  return actions;
}

// The workers are gone by themselves; what they left behind is asked to follow.
Actions end_leftovers(GroupState& group) {
  Actions actions{TermStrays{}};
  await_end(group, actions, group.stop.grace);
  return actions;
}

// Ctrl-C in a terminal that we handed over goes to that worker alone: its end by it, or with the
// shell's code for it, is the user's wish and not a failure. 0: it was not that.
int interrupted_by(const GroupState& group, const WorkerExited& e) {
  if (group.terminal_rank != e.local_rank) return 0;
  const int signo = shell_code(e.status) - 128;
  return signo == SIGINT || signo == SIGQUIT || signo == SIGHUP ? signo : 0;
}

Actions on(GroupState& group, const WorkerExited& e) {
  if (group.alive > 0) --group.alive;
  if (group.phase == Phase::stopping && group.alive == 0) return {TermStrays{}};
  if (group.phase != Phase::running) return {};
  if (const int signo = interrupted_by(group, e); signo != 0) {
    group.stop_signal = signo;
    group.stopped_by_signal = true;
    Actions actions;
    ask_to_end(group, actions, group.stop.grace);
    return actions;
  }
  if (is_success(e.status)) return group.alive == 0 ? end_leftovers(group) : Actions{};
  group.first_failure = WorkerFailure{e.local_rank, e.status, e.now};
  Actions actions;
  // Before the words: while the others end there is time for them.
  ask_to_end(group, actions, group.stop.grace);
  actions.emplace_back(TellFailure{*group.first_failure});
  return actions;
}

Actions on(GroupState& group, const Emptied& e) {
  if (group.phase != Phase::stopping && group.phase != Phase::killing) return {};
  const Actions quiet{DisarmTimer{Timer::grace}, DisarmTimer{Timer::give_up}};
  Actions next;
  if (group.guardian_lost || group.stopped_by_signal) {
    next = after_stop(group);
  } else if (group.start_failure) {
    next = after_start_failure(group, e.now);
  } else if (group.first_failure) {
    next = after_failure(group, e);
  } else {
    next = finish(group, Verdict::succeeded, ExitCode::success);
  }
  next.insert(next.begin(), quiet.begin(), quiet.end());
  return next;
}

Actions on_grace_over(GroupState& group) {
  if (group.phase != Phase::stopping) return {};
  if (group.term_sent || group.alive == 0) return kill(group, group.armed_grace);
  // The window after SIGUSR1 or SIGINT is over; nobody is killed who was never asked by SIGTERM.
  Actions actions;
  ask_to_end(group, actions, group.stop.grace);
  return actions;
}

Actions on(GroupState& group, const TimerFired& e) {
  switch (e.timer) {
    case Timer::grace:
      return on_grace_over(group);
    case Timer::give_up:
      return group.phase == Phase::killing
                 ? finish(group, Verdict::unkillable, ExitCode::unkillable)
                 : Actions{};
    case Timer::backoff:
      return group.phase == Phase::backing_off ? start(group) : Actions{};
  }
  return {};
}

Actions on_repeated_stop(GroupState& group, int signo) {
  if (group.phase != Phase::stopping) return {};
  Actions actions;
  if (signo == SIGTERM && !group.term_sent) {  // the scheduler means it now
    ask_to_end(group, actions, group.stop.grace);
    return actions;
  }
  // Schedulers repeat SIGTERM; only a person at the terminal means "faster" by asking again.
  if (signo != SIGINT || group.interrupts < 2) return {};
  if (group.interrupts > 2) return kill(group, Millis{0});
  const Millis grace = std::min(group.stop.grace, kHurriedGrace);
  actions.emplace_back(TellHurry{SIGTERM, grace});
  ask_to_end(group, actions, grace);
  return actions;
}

Actions on(GroupState& group, const SignalArrived& e) {
  if (group.phase == Phase::finished) return {};
  if (e.signo == SIGINT) ++group.interrupts;
  if (!is_stop_signal(group, e.signo)) {
    return group.phase == Phase::running ? Actions{SignalWorkers{e.signo}} : Actions{};
  }
  if (group.stop_signal != 0) return on_repeated_stop(group, e.signo);
  group.stop_signal = e.signo;
  if (group.phase == Phase::idle || group.phase == Phase::backing_off) return after_stop(group);
  if (group.phase != Phase::running) return {TellNoRestart{e.signo}};
  group.stopped_by_signal = true;
  group.term_sent = e.signo == SIGTERM;
  const bool preempted = is_preemption(group);
  const Millis grace = preempted ? group.stop.preempt_grace : group.stop.grace;
  Actions actions{SignalWorkers{e.signo}, TellStopping{e.signo, grace, preempted}};
  await_end(group, actions, grace);
  return actions;
}

Actions on(GroupState& group, const GuardianLost&) {
  if (group.phase == Phase::finished) return {};
  group.guardian_lost = true;
  if (group.phase == Phase::idle || group.phase == Phase::backing_off) return after_stop(group);
  group.phase = Phase::killing;
  return {KillAll{}, ArmTimer{Timer::give_up, group.stop.give_up}};
}

}  // namespace

Actions step(GroupState& group, const Event& event) {
  return std::visit([&](const auto& e) { return on(group, e); }, event);
}

bool in_classes(const std::vector<CodeRange>& classes, const ExitStatus& status) {
  const int code = shell_code(status);
  return std::ranges::any_of(classes,
                             [&](const CodeRange& r) { return r.first <= code && code <= r.last; });
}

Millis restart_delay(const RestartPolicy& policy, std::uint32_t quick_failures, double roll) {
  if (quick_failures == 0) return Millis{0};
  const double doubled = std::ldexp(static_cast<double>(policy.delay_base.count()),
                                    static_cast<int>(std::min(quick_failures - 1, 60U)));
  const double capped = std::min(doubled, static_cast<double>(policy.delay_max.count()));
  return Millis{std::llround(capped * (1 + policy.jitter * (2 * roll - 1)))};
}

bool is_transient(int errnum) {
  return errnum == EAGAIN || errnum == ENOMEM || errnum == EMFILE || errnum == ENFILE ||
         errnum == ETXTBSY;
}

std::string_view to_string(Phase phase) {
  constexpr std::string_view kNames[] = {"idle",    "running",     "stopping",
                                         "killing", "backing_off", "finished"};
  return kNames[static_cast<std::size_t>(phase)];
}

std::string_view to_string(Verdict verdict) {
  constexpr std::string_view kNames[] = {"succeeded",   "failed",       "never_retry",
                                         "no_progress", "cannot_start", "stopped",
                                         "preempted",   "unkillable",   "guardian_lost"};
  return kNames[static_cast<std::size_t>(verdict)];
}

}  // namespace acc::agent
