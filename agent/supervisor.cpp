#include "agent/supervisor.hpp"

#include "agent/spawn.hpp"
#include "agent/supervisor_moves.hpp"
#include "common/exit_codes.hpp"

#include <cerrno>
#include <csignal>

namespace acc::agent {

namespace {

using namespace moves;

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

Actions after_start_failure(GroupState& group, Instant now) {
  const auto failure = *group.start_failure;
  if (is_worth_a_retry(failure)) {
    if (group.stop_signal != 0) return finish_stopped(group);
    if (auto again = retry_start(group, now)) return *again;
  }
  return finish_unstartable(group, failure);
}

Actions after_failure(GroupState& group, const Emptied& e) {
  const auto& failure = *group.first_failure;
  const auto lived = std::chrono::duration_cast<Millis>(failure.when - group.round_started);
  const auto decision =
      decide_restart(group.restart, group.ledger, {failure.status, lived, e.progress, e.roll});
  if (failure.is_final) return finish(group, Verdict::never_retry, shell_code(failure.status));
  switch (decision.verdict) {
    case RestartVerdict::never_retry:
      return finish(group, Verdict::never_retry, shell_code(failure.status));
    case RestartVerdict::no_progress:
      return finish(group, Verdict::no_progress, ExitCode::hopeless);
    case RestartVerdict::spent:
      return finish(group, Verdict::failed, shell_code(failure.status));
    case RestartVerdict::restart:
      break;
  }
  if (group.stop_signal != 0) return finish_stopped(group);  // instead of the restart
  group.restart_is_due = true;
  return back_off(
      group, decision.delay,
      {TellRestart{group.ledger.budget_used, group.restart.max_restarts, decision.delay}});
}

Actions after_round(GroupState& group, const Emptied& e) {
  if (group.coordinated) return orders::on_emptied(group, e);
  if (group.guardian_lost || group.stopped_by_signal) return finish_stopped(group);
  if (group.start_failure) return after_start_failure(group, e.now);
  if (group.first_failure) return after_failure(group, e);
  return finish(group, Verdict::succeeded, ExitCode::success);
}

// ---- one function per event ----

Actions on(GroupState& group, const Began&) {
  return group.coordinated ? orders::on_began(group) : start(group);
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
  // A lease that ended meanwhile is nobody's failure: the job goes on elsewhere, or not at all.
  const bool by_lease = group.coordinated && e.failure.step == kLeaseStep;
  group.lease_over = group.lease_over || by_lease;
  if (!by_lease) group.start_failure = e.failure;
  // Those that did start know nothing yet and have nothing to save.
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

// Ctrl-C in a terminal that we handed over goes to that worker alone: its end by it, or with the
// shell's code for it, is the user's wish and not a failure. 0: it was not that.
int interrupted_by(const GroupState& group, const WorkerExited& e) {
  if (group.terminal_rank != e.local_rank) return 0;
  const int signo = shell_code(e.status) - 128;
  return signo == SIGINT || signo == SIGQUIT || signo == SIGHUP ? signo : 0;
}

Actions on_interrupted(GroupState& group, int signo, Instant now) {
  group.stop_signal = signo;
  group.stopped_by_signal = true;
  Actions actions;
  ask_to_end(group, actions, group.stop.grace, now);
  if (group.coordinated) actions.emplace_back(AskJob{signo, group.interrupts});
  return actions;
}

Actions on(GroupState& group, const WorkerExited& e) {
  if (group.alive > 0) --group.alive;
  if (group.phase == Phase::stopping && group.alive == 0) {
    Actions actions;
    await_left_overs(group, actions, group.armed_grace);
    return actions;
  }
  if (group.phase != Phase::running) return {};
  if (const int signo = interrupted_by(group, e); signo != 0)
    return on_interrupted(group, signo, e.now);
  if (is_success(e.status)) return group.alive == 0 ? end_leftovers(group, e.now) : Actions{};
  group.first_failure = WorkerFailure{e.local_rank, e.status, e.now, e.is_final};
  Actions actions;
  // Before the words: while the others end there is time for them.
  ask_to_end(group, actions, group.stop.grace, e.now);
  if (group.coordinated) actions.emplace_back(ReportFailed{*group.first_failure});
  actions.emplace_back(TellFailure{*group.first_failure});
  return actions;
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
  if (group.term_sent || group.alive == 0) return kill(group, group.armed_grace);
  // The window after SIGUSR1 or SIGINT is over; nobody is killed who was never asked by SIGTERM.
  Actions actions;
  ask_to_end(group, actions, group.stop.grace, now);
  return actions;
}

Actions on_left_overs(GroupState& group) {
  if (group.phase != Phase::stopping || group.alive > 0) return {};
  group.left_overs_due = true;
  return {TermStrays{}};
}

Actions on_unkillable(GroupState& group) {
  if (group.phase != Phase::killing) return {};
  Actions actions;
  if (group.coordinated) actions.emplace_back(ReportUnkillable{});
  append(actions, finish(group, Verdict::unkillable, ExitCode::unkillable));
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
    case Timer::farewell:
      return group.coordinated ? orders::on_farewell(group) : Actions{};
    case Timer::left_over:
      return on_left_overs(group);
  }
  return {};
}

Actions on(GroupState& group, const SignalArrived& e) {
  if (group.phase == Phase::finished) return {};
  if (e.signo == SIGINT) ++group.interrupts;
  if (group.coordinated) return orders::on_signal(group, e);
  if (!is_stop_signal(group, e.signo)) {
    return group.phase == Phase::running ? Actions{SignalWorkers{e.signo}} : Actions{};
  }
  if (group.stop_signal != 0) return hurry_by_signal(group, e.signo, e.now);
  group.stop_signal = e.signo;
  if (group.starting) {
    group.stopped_by_signal = true;
    return abort_start(group);
  }
  if (group.phase == Phase::idle || group.phase == Phase::backing_off) return finish_stopped(group);
  if (group.phase != Phase::running) return {TellNoRestart{e.signo}};
  return stop_by_signal(group, e.signo, e.now);
}

Actions on(GroupState& group, const GuardianLost&) {
  if (group.phase == Phase::finished) return {};
  group.guardian_lost = true;
  if (group.coordinated) return orders::on_guardian_lost(group);
  if (group.starting) return abort_start(group);
  if (group.phase == Phase::idle || group.phase == Phase::backing_off) return finish_stopped(group);
  group.phase = Phase::killing;
  return {KillAll{}, ArmTimer{Timer::give_up, group.stop.give_up}};
}

template <class Order>
Actions on(GroupState& group, const Order& e) {
  if (!group.coordinated || group.phase == Phase::finished) return {};
  return orders::on(group, e);
}

}  // namespace

Actions step(GroupState& group, const Event& event) {
  return std::visit([&](const auto& e) { return on(group, e); }, event);
}

bool is_transient(int errnum) {
  return errnum == EAGAIN || errnum == ENOMEM || errnum == EMFILE || errnum == ENFILE ||
         errnum == ETXTBSY;
}

bool is_worth_a_retry(const StartFailure& failure) {
  return is_transient(failure.errnum) && failure.refusal.empty();
}

std::string_view to_string(Phase phase) {
  constexpr std::string_view kNames[] = {"idle",        "running",  "stopping", "killing",
                                         "backing_off", "awaiting", "finished"};
  return kNames[static_cast<std::size_t>(phase)];
}

std::string_view to_string(Verdict verdict) {
  constexpr std::string_view kNames[] = {
      "succeeded", "failed",    "never_retry", "no_progress",   "cannot_start",
      "stopped",   "preempted", "unkillable",  "guardian_lost", "nodes_missing"};
  return kNames[static_cast<std::size_t>(verdict)];
}

}  // namespace acc::agent
