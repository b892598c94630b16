#include "agent/supervisor.hpp"

#include "agent/coordinated.hpp"
#include "agent/lease_terms.hpp"
#include "agent/transitions.hpp"
#include "common/enum_names.hpp"

#include <algorithm>
#include <csignal>
#include <utility>

namespace acc::agent {

namespace {

using namespace transitions;

// A worker may save before it ends by a Ctrl-C, and never has less time for it than others have.
constexpr Millis kInterruptCounts{30'000};
// A process of its own reports the Ctrl-C: on a busy machine after the exit of a worker that ended
// at once.
constexpr Millis kInterruptComes{100};
// A rank that fails leaves its groups first, and frees much before it exits: memory, a GPU's
// context.
constexpr Millis kCulpritExits{2'000};

Actions back_off(GroupState& group, Millis delay, Actions actions) {
  group.round = Round{group.round.value() + 1};
  if (delay == Millis{0}) {
    append(actions, start(group));
    return actions;
  }
  group.phase = Phase::backing_off;
  actions.emplace_back(ArmTimer{Timer::backoff, delay});
  return actions;
}

// ---- what follows a round in which nothing is left running, on one node ----

RoundResult result_of(const GroupState& group, const Emptied& e) {
  if (group.stopped_by_signal) return RoundInterrupted{};
  if (group.start_failure) return RoundUnstartable{group.start_failure->errnum};
  if (!group.first_failure) return RoundSucceeded{};
  return failed_round(group, e);
}

Actions after_round(GroupState& group, const Emptied& e) {
  if (group.coordinated) return coordinated::on_emptied(group, e);
  if (group.guardian_lost) return finish_stopped(group);
  if (group.start_failure && is_worth_a_retry(*group.start_failure) && group.stop_signal == 0) {
    if (auto again = retry_start(group, e.now)) return *again;
  }
  if (std::exchange(group.restart_asked, false)) {
    group.restart_is_due = true;
    return back_off(group, Millis{0}, {});
  }
  const auto next = what_follows(group.restart, group.ledger, result_of(group, e), stop_of(group));
  if (const auto* end = std::get_if<End>(&next)) return finish(group, *end);
  const Millis delay = std::get<Restart>(next).delay;
  group.restart_is_due = true;
  return back_off(group, delay, {TellRestart{group.ledger, group.restart.max_restarts, delay}});
}

// ---- one function per event ----

Actions on(GroupState& group, const Began&) {
  return group.coordinated ? coordinated::on_began(group) : start(group);
}

Actions on(GroupState& group, const RoundStarted& e) {
  if (!group.starting) return {};
  group.phase = Phase::running;
  group.starting = false;
  group.alive = group.size;
  group.round_started = e.now;
  group.start_retry_until.reset();
  return {};
}

// Before any worker ran; or exec failed for one after it had worked for another, the last moment
// at which it can.
Actions on(GroupState& group, const StartFailed& e) {
  if (!group.starting && group.phase != Phase::running) return {};
  group.starting = false;
  // A lease that ended meanwhile is not a failure: the job goes on elsewhere, or not at all.
  const bool by_lease = group.coordinated && e.failure.step == kLeaseStep;
  group.lease_over = group.lease_over || by_lease;
  if (!by_lease) group.start_failure = e.failure;
  // The workers that did start have nothing to save yet.
  Actions actions{KillAll{}};
  await_end(group, actions, group.stop.give_up, e.now);
  if (group.coordinated && !by_lease && !is_worth_a_retry(e.failure))
    actions.emplace_back(ReportStartFailed{e.failure});
  return actions;
}

// The workers have exited by themselves; what they left behind has to follow.
Actions end_leftovers(GroupState& group, Instant now) {
  Actions actions;
  await_left_overs(group, actions, group.stop.grace);
  await_end(group, actions, group.stop.grace, now);
  return actions;
}

// SIGKILL is another's doing (out of memory), and a worker that asks for no restart has named its
// failure.
bool may_be_interrupted(const GroupState& group, const WorkerExited& e) {
  return group.terminal.rank == e.local_rank && !is_success(e.status) && !e.is_final &&
         shell_code(e.status) != 128 + SIGKILL;
}

// Ctrl-C in a terminal that we handed over goes to that worker alone: its end by it, with the
// shell's code for it, or by a failure soon after it, is the user's wish. 0: it was not that.
int interrupted_by(const GroupState& group, const WorkerExited& e) {
  if (group.terminal.rank != e.local_rank) return 0;
  const int signo = shell_code(e.status) - 128;
  if (signo == SIGINT || signo == SIGQUIT || signo == SIGHUP) return signo;
  const bool counts =
      group.terminal.interrupted_at &&
      e.now - *group.terminal.interrupted_at <= std::max(kInterruptCounts, group.stop.grace);
  return counts && may_be_interrupted(group, e) ? SIGINT : 0;
}

Actions on_interrupted(GroupState& group, int signo, Instant now) {
  group.stop_signal = signo;
  group.stopped_by_signal = true;
  if (signo == SIGINT && group.interrupts == 0) group.interrupts = 1;  // the next one is the second
  Actions actions;
  ask_to_end(group, actions, group.stop.grace, now);
  if (group.coordinated) {
    group.is_signal_unheard = !group.is_connected;
    actions.emplace_back(AskJob{signo});
  }
  return actions;
}

Actions on_failure(GroupState& group, WorkerFailure failure, Instant now) {
  group.first_failure = std::move(failure);
  group.held_failure.reset();
  Actions actions;
  // Before the report and the message: there is time for them while the other workers end.
  ask_to_end(group, actions, group.stop.grace, now);
  if (group.coordinated) actions.emplace_back(ReportFailed{*group.first_failure});
  actions.emplace_back(TellFailure{*group.first_failure});
  return actions;
}

// A failure that follows from another rank's. SIGKILL is another's doing, and a worker that asks
// for no restart has named its failure.
bool follows_another(const WorkerExited& e) {
  return e.peer_failed && !e.is_final && shell_code(e.status) != 128 + SIGKILL;
}

// No worker is left that could be the one that failed first.
bool is_culprit_missing(const GroupState& group) {
  return group.held_failure && group.alive == 0 && !group.coordinated;
}

// The rank that failed first may exit later than those that fail for want of it. If it is on
// another node, its failure is reported meanwhile and the order to stop comes.
Actions hold_back(GroupState& group, WorkerFailure failure) {
  const Instant now = failure.when;
  Actions actions;
  if (!group.held_failure) {
    group.held_failure = std::move(failure);
    actions.emplace_back(ArmTimer{Timer::culprit, kCulpritExits});
  }
  return is_culprit_missing(group) ? on_failure(group, *group.held_failure, now) : actions;
}

Actions on_success(GroupState& group, Instant now) {
  if (is_culprit_missing(group)) return on_failure(group, *group.held_failure, now);
  return group.alive == 0 && !group.held_failure ? end_leftovers(group, now) : Actions{};
}

Actions on_no_culprit(GroupState& group, Instant now) {
  // One that had the terminal is the culprit, or was interrupted: that is decided soon.
  if (group.phase != Phase::running || !group.held_failure || group.terminal.held_failure)
    return {};
  return on_failure(group, *group.held_failure, now);
}

Actions on(GroupState& group, const WorkerExited& e) {
  if (group.alive > 0) --group.alive;
  if (group.phase == Phase::stopping && group.alive == 0) {
    Actions actions;
    await_left_overs(group, actions, group.grace.armed);
    return actions;
  }
  // Others may still use up their grace, or hang: what this one left is asked long before its end.
  if (group.phase == Phase::stopping && group.term_sent)
    return {ArmTimer{Timer::left_over, left_over_time(group.grace.armed)}};
  // Exits after one that is held don't change how the round ends.
  if (group.phase != Phase::running || group.terminal.held_failure) return {};
  if (const int signo = interrupted_by(group, e); signo != 0)
    return on_interrupted(group, signo, e.now);
  if (is_success(e.status)) return on_success(group, e.now);
  WorkerFailure failure{e.local_rank, e.status, e.now, e.is_final};
  if (follows_another(e)) return hold_back(group, std::move(failure));
  if (!may_be_interrupted(group, e)) return on_failure(group, std::move(failure), e.now);
  group.terminal.held_failure = std::move(failure);
  return {ArmTimer{Timer::interrupt, kInterruptComes}};
}

Actions on(GroupState& group, const TerminalInterrupted& e) {
  if (group.phase != Phase::running) return {};
  group.terminal.interrupted_at = e.now;
  const bool has_failed =
      group.held_failure && group.held_failure->local_rank == group.terminal.rank;
  return group.terminal.held_failure || has_failed ? on_interrupted(group, SIGINT, e.now)
                                                   : Actions{};
}

Actions on_no_interrupt(GroupState& group) {
  if (group.phase != Phase::running || !group.terminal.held_failure) return {};
  auto failure = *std::exchange(group.terminal.held_failure, std::nullopt);
  const Instant now = failure.when;
  return on_failure(group, std::move(failure), now);
}

Actions on(GroupState& group, const HangFound& e) {
  if (group.phase != Phase::running || group.terminal.held_failure) return {};
  WorkerFailure failure{e.local_rank, Exited{to_int(ExitCode::hang)}, e.now, false, e.cause};
  return group.coordinated ? coordinated::on_hang(group, std::move(failure))
                           : on_failure(group, std::move(failure), e.now);
}

Actions on(GroupState& group, const Emptied& e) {
  if (group.phase != Phase::stopping && group.phase != Phase::killing) return {};
  Actions actions{DisarmTimer{Timer::grace}, DisarmTimer{Timer::give_up},
                  DisarmTimer{Timer::left_over}};
  append(actions, after_round(group, e));
  return actions;
}

Actions on_grace_over(GroupState& group, Instant now) {
  if (group.phase != Phase::stopping) return {};
  if (group.alive == 0) return hurry_left_overs(group);
  if (group.term_sent) return kill(group, group.grace.armed);
  // The time after SIGUSR1 or SIGINT is over; no worker is killed without a SIGTERM before. What
  // was given was the time for a checkpoint, or for a start that swallows SIGINT; or it was all.
  const bool was_all = !stop_of(group).is_preemption && group.grace.armed >= group.stop.grace;
  Actions actions;
  ask_to_end(group, actions, was_all ? std::min(group.stop.grace, kHurriedGrace) : group.stop.grace,
             now);
  return actions;
}

Actions on_left_overs(GroupState& group) {
  if (group.phase != Phase::stopping) return {};
  group.left_overs_due = group.alive == 0;
  return {TerminateEscaped{}};
}

Actions on_unkillable(GroupState& group) {
  if (group.phase != Phase::killing) return {};
  Actions actions;
  if (group.coordinated) actions.emplace_back(ReportUnkillable{});
  append(actions, finish(group, {Outcome::unkillable, to_int(ExitCode::unkillable)}));
  return actions;
}

Actions on(GroupState& group, const TimerFired& e) {
  switch (e.timer) {
    case Timer::grace:
      return on_grace_over(group, e.now);
    case Timer::give_up:
      return on_unkillable(group);
    case Timer::backoff:
      return group.phase == Phase::backing_off ? start(group) : Actions{};
    case Timer::close_timeout:
      return group.coordinated ? coordinated::on_close_timeout(group) : Actions{};
    case Timer::left_over:
      return on_left_overs(group);
    case Timer::startup:
      return group.coordinated ? coordinated::on_startup_over(group, e.now) : Actions{};
    case Timer::interrupt:
      return on_no_interrupt(group);
    case Timer::culprit:
      return on_no_culprit(group, e.now);
  }
  return {};
}

Actions on_signal(GroupState& group, const SignalArrived& e) {
  if (group.coordinated) return coordinated::on_signal(group, e);
  if (!ends_job(e.signo, group.stop.preempt_signals)) {
    return group.phase == Phase::running ? Actions{SignalWorkers{e.signo}} : Actions{};
  }
  if (group.stop_signal != 0) return hurry_by_signal(group, e.signo, e.now);
  group.stop_signal = e.signo;
  // The round was ended for another one and by nothing else: now it ends by the signal.
  if (std::exchange(group.restart_asked, false) && !group.first_failure)
    group.stopped_by_signal = true;
  if (group.starting) {
    group.stopped_by_signal = true;
    return abort_start(group);
  }
  if (group.phase == Phase::idle || group.phase == Phase::backing_off) return finish_stopped(group);
  if (group.phase != Phase::running) return {TellNoRestart{e.signo}};
  return stop_by_signal(group, e.signo, e.now);
}

Actions on(GroupState& group, const SignalArrived& e) {
  if (group.phase == Phase::finished) return {};
  if (e.signo == SIGINT) ++group.interrupts;
  Actions actions;
  // The round has failed before the signal, and must not count as ended by it.
  const bool has_failed = group.phase == Phase::running && group.held_failure;
  if (has_failed && ends_job(e.signo, group.stop.preempt_signals))
    actions = on_failure(group, *group.held_failure, e.now);
  append(actions, on_signal(group, e));
  return actions;
}

// Its death is reported more than once; what asks for the same a second later is another SIGTERM.
static bool is_asked_again(const GroupState& group, Instant now) {
  constexpr Millis kOneDeath{1'000};
  return group.guardian_lost && now - *group.guardian_lost > kOneDeath;
}

Actions on(GroupState& group, const GuardianLost& e) {
  if (group.phase == Phase::finished) return {};
  const bool is_again = is_asked_again(group, e.now);
  if (!group.guardian_lost) group.guardian_lost = e.now;
  if (group.coordinated) return coordinated::on_guardian_lost(group);
  if (group.starting) return abort_start(group);
  if (group.phase == Phase::idle || group.phase == Phase::backing_off) return finish_stopped(group);
  // Python's subprocess.run kills acc-launch 0.25 s after a Ctrl-C that both had.
  if (group.phase == Phase::stopping && group.stop_signal == SIGINT && !is_again) return {};
  group.phase = Phase::killing;
  return {KillAll{}, ArmTimer{Timer::give_up, group.stop.give_up}};
}

Actions on(GroupState& group, const StopAsked& e) {
  if (group.phase == Phase::finished) return {};
  const bool is_first = group.stop_signal == 0;
  if (e.grace && (is_first || *e.grace < group.stop.grace)) {
    group.stop.grace = *e.grace;
    group.stop.preempt_grace = *e.grace;
  }
  Actions actions = on(group, SignalArrived{SIGTERM, e.now});
  if (e.grace) append(actions, shorten_grace(group, *e.grace, e.now));
  return actions;
}

Actions on(GroupState& group, const RestartAsked& e) {
  if (!why_no_restart(group).empty()) return {};
  Actions actions;
  // The round has failed before, and must not count as ended by the request.
  if (group.phase == Phase::running && group.held_failure)
    actions = on_failure(group, *group.held_failure, e.now);
  if (group.coordinated) {
    actions.emplace_back(AskRestart{});
    return actions;
  }
  if (group.phase == Phase::backing_off) {  // decided anyway: it comes now
    actions.emplace_back(DisarmTimer{Timer::backoff});
    append(actions, start(group));
    return actions;
  }
  group.restart_asked = true;
  if (group.phase != Phase::running) return actions;  // a failed round is ending already
  actions.emplace_back(TellRestartAsked{group.stop.grace});
  ask_to_end(group, actions, group.stop.grace, e.now);
  return actions;
}

template <class Order>
Actions on(GroupState& group, const Order& e) {
  if (!group.coordinated || group.phase == Phase::finished) return {};
  return coordinated::on(group, e);
}

}  // namespace

Actions step(GroupState& group, const Event& event) {
  return std::visit([&](const auto& e) { return on(group, e); }, event);
}

std::string_view why_no_restart(const GroupState& group) {
  if (group.phase == Phase::finished) return "the job is over";
  if (group.stop_signal != 0 || group.guardian_lost) return "the job is being stopped";
  if (group.coordinated)
    return group.is_connected ? "" : "the coordinator of its nodes isn't reached now: try again";
  if (group.phase == Phase::backing_off || group.phase == Phase::running) return {};
  const bool is_ending = group.phase == Phase::stopping || group.phase == Phase::killing;
  if (!is_ending) return "its workers are just being started";
  if (group.first_failure || group.restart_asked) return {};
  return group.start_failure ? "its workers can't be started" : "its workers have completed";
}

std::string_view to_string(Phase phase) {
  static constexpr EnumNames<Phase, Phase::finished> kNames{
      {"idle", "running", "stopping", "killing", "backing_off", "awaiting", "finished"}};
  return kNames[phase];
}

bool ends_for_good(const GroupState& group) {
  return group.stop_signal != 0 || group.orders.close ||
         (group.orders.stop && group.orders.stop->for_good);
}

Instant lost_since(const GroupState& group, Instant now) {
  if (group.first_failure) return std::min(group.first_failure->when, now);
  if (group.orders.stop)
    return std::min(group.orders.stop->now - group.orders.stop->failed_ago, now);
  return now;
}

}  // namespace acc::agent
