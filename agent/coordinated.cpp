#include "agent/coordinated.hpp"

#include "agent/transitions.hpp"

#include <algorithm>
#include <csignal>

namespace acc::agent::coordinated {

using namespace transitions;

namespace {

// The other nodes may use up their grace before the coordinator can close the job. This node ends
// by itself this long after that.
constexpr Millis kCloseTimeout{10'000};
// Nothing was started on any node: only the coordinator's answer is waited for.
constexpr Millis kCloseTimeoutBeforeStart{2'000};
// There is no coordinator: time for a connection that is just being made.
constexpr Millis kCloseTimeoutUnheard{1'000};

// No worker is here and none is about to be.
bool is_resting(const GroupState& group) {
  return group.phase == Phase::awaiting || (group.phase == Phase::idle && !group.starting);
}

int signo_of(const StopOrdered& order) { return order.signo == 0 ? SIGTERM : order.signo; }

bool means_now(const StopOrdered& order) {
  return order.signo == SIGKILL || order.grace <= Millis{0};
}

bool is_ordered_for_good(const GroupState& group) {
  return group.orders.stop && group.orders.stop->for_good;
}

// Asked to end for good, this node doesn't wait for ever for the job to be closed.
void await_close(const GroupState& group, Actions& actions) {
  const bool ordered = is_ordered_for_good(group);
  if (group.stop_signal == 0 && !ordered) return;
  const Millis own = stop_of(group).is_preemption ? group.stop.preempt_grace : group.stop.grace;
  const Millis grace = ordered ? group.orders.stop->grace : own;
  const Millis wait = group.is_signal_unheard ? kCloseTimeoutUnheard
                      : group.orders.round    ? grace + kCloseTimeout
                                              : kCloseTimeoutBeforeStart;
  actions.emplace_back(ArmTimer{Timer::close_timeout, wait});
}

// From a round that isn't there (any more) to the wait for the next order.
Actions rest(GroupState& group, Actions actions) {
  group.phase = Phase::awaiting;
  group.start_retry_until.reset();
  await_close(group, actions);
  return actions;
}

// The wait before another try to start the round is over without one.
Actions give_up_start(GroupState& group) {
  return rest(group, {DisarmTimer{Timer::backoff}, ReportStopped{group.progress}});
}

Actions kill_for_lease(GroupState& group) {
  if (group.phase == Phase::killing) return {KillAll{}};
  group.phase = Phase::killing;
  // The guardian tells the user.
  return {DisarmTimer{Timer::grace}, KillAll{}, ArmTimer{Timer::give_up, group.stop.give_up}};
}

Actions obey_stop(GroupState& group, const StopOrdered& order, Instant now) {
  if (means_now(order)) return kill(group, Millis{0});
  Actions actions;
  if (signo_of(order) == SIGTERM) {
    ask_to_end(group, actions, order.grace, now);
  } else {
    actions.emplace_back(SignalWorkers{signo_of(order)});
    await_end(group, actions, time_for_signal(group, order.signo, order.grace, now), now);
  }
  return actions;
}

// The workers are on their way out already: an order may shorten that and never lengthens it.
Actions hurry(GroupState& group, const StopOrdered& order) {
  if (means_now(order)) return kill(group, Millis{0});
  Actions actions;
  if (signo_of(order) == SIGTERM && !group.term_sent && group.alive > 0) {
    ask_to_end(group, actions, order.grace, order.now);
  } else if (order.now + order.grace < group.grace.ends) {
    await_end(group, actions, order.grace, order.now);
  }
  return actions;
}

Actions finish_closed(GroupState& group) {
  const End& end = group.orders.close->end;
  // For the report: another node may have received the signal.
  if (end.outcome == Outcome::stopped && end.exit_code > 128)
    group.stop_signal = end.exit_code - 128;
  if (end.outcome == Outcome::preempted && group.stop_signal == 0 && group.orders.stop)
    group.stop_signal = signo_of(*group.orders.stop);
  return finish(group, end);
}

// The first signal that asks the job to end. The workers of this node needn't wait for the
// coordinator to react.
Actions on_first_stop(GroupState& group, const SignalArrived& e) {
  group.stop_signal = e.signo;
  if (group.starting) {
    group.stopped_by_signal = true;
    return abort_start(group);
  }
  switch (group.phase) {
    case Phase::running:
      return stop_by_signal(group, e.signo, e.now);
    case Phase::backing_off:
      return give_up_start(group);
    case Phase::idle:
    case Phase::awaiting: {
      Actions actions;
      await_close(group, actions);
      return actions;
    }
    default:
      return {TellNoRestart{e.signo}};
  }
}

Actions on_repeated_stop(GroupState& group, const SignalArrived& e) {
  if (!is_resting(group)) return hurry_by_signal(group, e.signo, e.now);
  if (e.signo != SIGINT || group.interrupts < 2) return {};
  if (group.interrupts > 2) return finish_stopped(group);
  return {ArmTimer{Timer::close_timeout, kHurriedGrace}};
}

// A Ctrl-C that another node received first counts here too: a later one is the second. One that
// follows at once is the same one, which srun sends to all nodes; acc-launch --hosts sends a node
// only repetitions of what it sent to another.
void count_press_elsewhere(GroupState& group, const SignalArrived& e) {
  constexpr Millis kSamePress{1'000};
  const bool is_ordered = group.orders.stop && group.orders.stop->signo == SIGINT;
  if (e.signo != SIGINT || !is_ordered || group.stop_signal != 0) return;
  group.stop_signal = SIGINT;
  const bool is_new = e.now - group.orders.stop->now >= kSamePress;
  if (is_new || group.stop.is_from_one_launch) ++group.interrupts;
}

// The signal that ends the job: it came here, or the coordinator of the last round ordered it.
int ending_signal(const GroupState& group) {
  if (group.stop_signal != 0) return group.stop_signal;
  return is_ordered_for_good(group) ? signo_of(*group.orders.stop) : 0;
}

// Started by an order of a coordinator that did not know of the signal yet, or never will: it was
// elected when the one that had ordered the end was lost.
Actions refuse_round(int signo) { return {AskJob{signo}, ReportStopped{false}}; }

// Positive: the workers are too young for this order.
Millis startup_left(const GroupState& group, const StopOrdered& order) {
  const bool has_workers = group.starting || group.phase == Phase::running;
  if (!has_workers || order.for_good || means_now(order)) return Millis{0};
  return std::chrono::duration_cast<Millis>(group.orders.round_at + group.startup_grace -
                                            order.now);
}

Actions carry_out_stop(GroupState& group, const StopOrdered& order) {
  group.orders.is_stop_held = false;
  if (group.starting) return abort_start(group);
  switch (group.phase) {
    case Phase::running:
      return obey_stop(group, order, order.now);
    case Phase::stopping:
      return hurry(group, order);
    case Phase::backing_off:
      return give_up_start(group);
    case Phase::idle:
    case Phase::awaiting: {
      Actions actions{ReportStopped{group.progress}};
      await_close(group, actions);
      return actions;
    }
    case Phase::killing:
    case Phase::finished:
      break;
  }
  return {};
}

}  // namespace

Actions on_began(GroupState& group) {
  if (group.phase == Phase::idle) group.phase = Phase::awaiting;
  return {};
}

Actions on_emptied(GroupState& group, const Emptied& e) {
  group.progress = e.progress;
  group.orders.is_stop_held = false;
  if (group.guardian_lost) return finish_stopped(group);
  if (group.orders.close) return finish_closed(group);
  Actions actions;
  const bool asked_to_end = group.stop_signal != 0 || group.orders.stop || group.lease_over;
  if (group.start_failure && is_worth_a_retry(*group.start_failure) && !asked_to_end) {
    if (auto again = retry_start(group, e.now)) return *again;
    actions.emplace_back(ReportStartFailed{*group.start_failure});
  }
  const bool completed = !group.first_failure && !group.start_failure && !group.orders.stop &&
                         !group.lease_over && !group.stopped_by_signal;
  if (completed) {
    actions.emplace_back(ReportCompleted{e.progress});
  } else {
    actions.emplace_back(ReportStopped{e.progress});
  }
  return rest(group, std::move(actions));
}

// The coordinator found that none is left, and is gone before it could tell how the job ended.
End end_without_restart(const GroupState& group) {
  auto policy = group.restart;
  policy.max_restarts = policy.max_no_progress = 0;  // the latter counts all nodes' progress
  auto ledger = group.ledger;
  const RoundResult round = group.first_failure
                                ? RoundResult{failed_round(group, Emptied{{}, group.progress})}
                                : RoundUnstartable{group.start_failure->errnum};
  return std::get<End>(what_follows(policy, ledger, round, {}));
}

Actions on_close_timeout(GroupState& group) {
  if (!is_resting(group)) return {};
  if (group.stop_signal != 0) return finish_stopped(group);
  if (!is_ordered_for_good(group)) return {};
  if (group.first_failure || group.start_failure) return finish(group, end_without_restart(group));
  group.stop_signal = signo_of(*group.orders.stop);
  return finish_stopped(group);
}

Actions on_signal(GroupState& group, const SignalArrived& e) {
  const bool ends = ends_job(e.signo, group.stop.preempt_signals);
  // Without a coordinator, what ends nothing can be passed on here at least.
  if (!ends && !group.is_connected) return on(group, SignalOrdered{e.signo});
  Actions actions{AskJob{e.signo}};
  if (!ends) return actions;  // the coordinator returns it as SignalOrdered
  group.is_signal_unheard = group.is_signal_unheard || !group.is_connected;
  count_press_elsewhere(group, e);
  append(actions, group.stop_signal == 0 ? on_first_stop(group, e) : on_repeated_stop(group, e));
  return actions;
}

Actions on_guardian_lost(GroupState& group) {
  if (group.starting) return abort_start(group);
  if (is_resting(group) || group.phase == Phase::backing_off) return finish_stopped(group);
  return kill_for_lease(group);
}

Actions on(GroupState& group, const RoundOrdered& e) {
  const bool is_newer = !group.orders.round || e.round > *group.orders.round;
  if (!is_resting(group) || !is_newer) return {};
  if (const int signo = ending_signal(group); signo != 0) return refuse_round(signo);
  group.orders.round = e.round;
  group.orders.round_at = e.now;
  group.round = e.round;
  group.ledger = e.ledger;
  group.orders.stop.reset();
  group.orders.is_stop_held = false;
  group.lease_over = false;
  group.progress = false;
  group.start_retry_until.reset();
  Actions actions{DisarmTimer{Timer::close_timeout}};
  append(actions, start(group));
  return actions;
}

// Of acc-launch --hosts the second Ctrl-C, which is for all nodes, may be here before the order by
// which the first one comes: it was taken for the first.
bool is_overtaken_by_press(const GroupState& group, const StopOrdered& e) {
  return group.stop.is_from_one_launch && e.is_asked_elsewhere && e.signo == SIGINT &&
         !group.orders.stop && group.stop_signal == SIGINT && group.interrupts > 0;
}

// To a coordinator that stops the round for another one. Workers that are ending already keep the
// time that the order to end gave them.
Actions tell_of_end(GroupState& group, const StopOrdered& order) {
  Actions actions{AskJob{ending_signal(group)}};
  if (group.phase != Phase::stopping) append(actions, carry_out_stop(group, order));
  return actions;
}

Actions on(GroupState& group, const StopOrdered& e) {
  const bool is_overtaken = is_overtaken_by_press(group, e);
  // One that was elected since may stop the round for a loss, and not know that the job is to end.
  const bool is_unaware = is_ordered_for_good(group) && !e.for_good;
  if (is_unaware) return tell_of_end(group, e);
  group.orders.stop = e;
  if (const Millis left = startup_left(group, *group.orders.stop); left > Millis{0}) {
    group.orders.is_stop_held = true;
    return {ArmTimer{Timer::startup, left}};
  }
  Actions actions = carry_out_stop(group, e);
  if (is_overtaken) {
    ++group.interrupts;
    append(actions, on_repeated_stop(group, {SIGINT, e.now}));
  }
  return actions;
}

Actions on_startup_over(GroupState& group, Instant now) {
  if (!group.orders.is_stop_held) return {};
  group.orders.stop->now = now;
  return carry_out_stop(group, *group.orders.stop);
}

// All workers here live: their end would make those of other nodes fail, which could be told first.
// So the order for all is awaited, a moment.
Actions on_hang(GroupState& group, WorkerFailure failure) {
  constexpr Millis kOrderComes{500};
  const Instant now = failure.when;
  group.first_failure = std::move(failure);
  Actions actions{ReportFailed{*group.first_failure}, TellFailure{*group.first_failure}};
  await_end(group, actions, kOrderComes, now);
  return actions;
}

Actions on(GroupState& group, const SignalOrdered& e) {
  return group.phase == Phase::running ? Actions{SignalWorkers{e.signo}} : Actions{};
}

Actions on(GroupState& group, const LeaseOver&) {
  // Without workers, too, what was killed through the cgroup must be known before the next round
  // is born into it.
  if (is_resting(group)) return {KillAll{}};
  group.lease_over = true;
  if (group.starting) return abort_start(group);
  if (group.phase != Phase::backing_off) return kill_for_lease(group);
  Actions actions{KillAll{}};
  append(actions, give_up_start(group));
  return actions;
}

Actions on(GroupState& group, const JobClosed& e) {
  if (group.orders.close) return {};
  group.orders.close = e;
  if (group.starting) return abort_start(group);
  if (is_resting(group) || group.phase == Phase::backing_off) return finish_closed(group);
  Actions actions;
  if (group.phase == Phase::running) ask_to_end(group, actions, group.stop.grace, e.now);
  return actions;
}

// A signal asked for the end, but no coordinator could be informed: the node ends by the signal.
Actions on(GroupState& group, const GaveUp& e) {
  if (!group.is_signal_unheard || e.is_refused) return on(group, JobClosed{e.end, e.now});
  return is_resting(group) ? finish_stopped(group) : Actions{};
}

// A signal that could not be reported is sent over the new connection; wait for the answer.
Actions on(GroupState& group, const LinkChanged& e) {
  group.is_connected = e.is_connected;
  if (!e.is_connected || !group.is_signal_unheard) return {};
  group.is_signal_unheard = false;
  Actions actions;
  if (is_resting(group)) await_close(group, actions);
  return actions;
}

}  // namespace acc::agent::coordinated
