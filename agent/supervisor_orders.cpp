#include "agent/supervisor_moves.hpp"

#include <algorithm>
#include <csignal>

// The life of one node's workers in a job whose rounds are decided by the coordinator.
namespace acc::agent::orders {

using namespace moves;

namespace {

// The other nodes may use up their grace before the coordinator can close the job; so long after
// that this node goes by itself.
constexpr Millis kFarewell{10'000};
// Nothing was started anywhere: nobody is to be waited for but the coordinator's answer.
constexpr Millis kFarewellBeforeStart{2'000};

// No worker is here and none is about to be.
bool is_resting(const GroupState& group) {
  return group.phase == Phase::awaiting || (group.phase == Phase::idle && !group.starting);
}

int signo_of(const StopOrdered& order) { return order.signo == 0 ? SIGTERM : order.signo; }

bool means_now(const StopOrdered& order) {
  return order.signo == SIGKILL || order.grace <= Millis{0};
}

bool is_ordered_for_good(const GroupState& group) {
  return group.stop_ordered && group.stop_ordered->for_good;
}

// Asked to end for good, this node doesn't wait for ever for the job to be closed.
void expect_farewell(const GroupState& group, Actions& actions) {
  const bool ordered = is_ordered_for_good(group);
  if (group.stop_signal == 0 && !ordered) return;
  const Millis own = std::ranges::count(group.stop.preempt_signals, group.stop_signal) != 0
                         ? group.stop.preempt_grace
                         : group.stop.grace;
  const Millis grace = ordered ? group.stop_ordered->grace : own;
  const Millis wait = group.ordered_round ? grace + kFarewell : kFarewellBeforeStart;
  actions.emplace_back(ArmTimer{Timer::farewell, wait});
}

// From a round that isn't there (any more) to the wait for the next order.
Actions rest(GroupState& group, Actions actions) {
  group.phase = Phase::awaiting;
  group.start_retry_until.reset();
  expect_farewell(group, actions);
  return actions;
}

// The wait before another try to start the round is over without one.
Actions give_up_start(GroupState& group) {
  return rest(group, {DisarmTimer{Timer::backoff}, ReportStopped{group.progress}});
}

Actions kill_for_lease(GroupState& group) {
  if (group.phase == Phase::killing) return {KillAll{}};
  group.phase = Phase::killing;
  // The guardian has the words.
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
  } else if (order.now + order.grace < group.grace_ends) {
    await_end(group, actions, order.grace, order.now);
  }
  return actions;
}

Actions finish_closed(GroupState& group) {
  const auto& closed = *group.closed;
  // For the report: the signal may have come to another node.
  if (closed.verdict == Verdict::stopped && closed.exit_code > 128)
    group.stop_signal = closed.exit_code - 128;
  if (closed.verdict == Verdict::preempted && group.stop_signal == 0 && group.stop_ordered)
    group.stop_signal = signo_of(*group.stop_ordered);
  return finish(group, closed.verdict, closed.exit_code);
}

// The first signal that asks the job to end. The workers of this node needn't wait for the
// coordinator to hear of it.
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
      expect_farewell(group, actions);
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
  return {ArmTimer{Timer::farewell, kHurriedGrace}};
}

// Started by the order of a coordinator that hadn't heard of the signal yet, or never will.
Actions refuse_round(GroupState& group) {
  return {AskJob{group.stop_signal, group.interrupts}, ReportStopped{false}};
}

}  // namespace

Actions on_began(GroupState& group) {
  if (group.phase == Phase::idle) group.phase = Phase::awaiting;
  return {};
}

Actions on_emptied(GroupState& group, const Emptied& e) {
  group.progress = e.progress;
  if (group.guardian_lost) return finish_stopped(group);
  if (group.closed) return finish_closed(group);
  Actions actions;
  const bool asked_to_end = group.stop_signal != 0 || group.stop_ordered || group.lease_over;
  if (group.start_failure && is_worth_a_retry(*group.start_failure) && !asked_to_end) {
    if (auto again = retry_start(group, e.now)) return *again;
    actions.emplace_back(ReportStartFailed{*group.start_failure});
  }
  const bool completed = !group.first_failure && !group.start_failure && !group.stop_ordered &&
                         !group.lease_over && !group.stopped_by_signal;
  if (completed) {
    actions.emplace_back(ReportCompleted{});
  } else {
    actions.emplace_back(ReportStopped{e.progress});
  }
  return rest(group, std::move(actions));
}

Actions on_farewell(GroupState& group) {
  if (!is_resting(group)) return {};
  if (group.stop_signal != 0) return finish_stopped(group);
  if (!is_ordered_for_good(group)) return {};
  if (group.first_failure)
    return finish(group, Verdict::failed, shell_code(group.first_failure->status));
  if (group.start_failure) return finish_unstartable(group, *group.start_failure);
  if (group.stop_ordered->signo == 0)
    return finish(group, Verdict::nodes_missing, ExitCode::failure);
  group.stop_signal = group.stop_ordered->signo;
  return finish_stopped(group);
}

Actions on_signal(GroupState& group, const SignalArrived& e) {
  Actions actions{AskJob{e.signo, group.interrupts}};
  if (!is_stop_signal(group, e.signo)) return actions;  // comes back as SignalOrdered
  append(actions, group.stop_signal == 0 ? on_first_stop(group, e) : on_repeated_stop(group, e));
  return actions;
}

Actions on_guardian_lost(GroupState& group) {
  if (group.starting) return abort_start(group);
  if (is_resting(group) || group.phase == Phase::backing_off) return finish_stopped(group);
  return kill_for_lease(group);
}

Actions on(GroupState& group, const RoundOrdered& e) {
  const bool is_newer = !group.ordered_round || e.round > *group.ordered_round;
  if (!is_resting(group) || !is_newer) return {};
  if (group.stop_signal != 0) return refuse_round(group);
  group.ordered_round = e.round;
  group.round = e.round;
  group.ledger = e.ledger;
  group.stop_ordered.reset();
  group.lease_over = false;
  group.progress = false;
  group.start_retry_until.reset();
  Actions actions{DisarmTimer{Timer::farewell}};
  append(actions, start(group));
  return actions;
}

Actions on(GroupState& group, const StopOrdered& e) {
  const bool for_good = e.for_good || is_ordered_for_good(group);
  group.stop_ordered = e;
  group.stop_ordered->for_good = for_good;
  if (group.starting) return abort_start(group);
  switch (group.phase) {
    case Phase::running:
      return obey_stop(group, e, e.now);
    case Phase::stopping:
      return hurry(group, e);
    case Phase::backing_off:
      return give_up_start(group);
    case Phase::idle:
    case Phase::awaiting: {
      Actions actions{ReportStopped{group.progress}};
      expect_farewell(group, actions);
      return actions;
    }
    case Phase::killing:
    case Phase::finished:
      break;
  }
  return {};
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
  if (group.closed) return {};
  group.closed = e;
  if (group.starting) return abort_start(group);
  if (is_resting(group) || group.phase == Phase::backing_off) return finish_closed(group);
  Actions actions;
  if (group.phase == Phase::running) ask_to_end(group, actions, group.stop.grace, e.now);
  return actions;
}

}  // namespace acc::agent::orders
