#pragma once

#include "agent/supervisor.hpp"
#include "common/exit_codes.hpp"

#include <optional>

/// The supervisor's inner parts, shared by supervisor.cpp (one node decides all) and
/// supervisor_orders.cpp (the coordinator decides). Nobody else includes this.
namespace acc::agent {

namespace moves {

inline constexpr Millis kHurriedGrace{2'000};  // after the second Ctrl-C

[[nodiscard]] bool is_stop_signal(const GroupState& group, int signo);
void append(Actions& actions, const Actions& more);

Actions finish(GroupState& group, Verdict verdict, int exit_code);
Actions finish(GroupState& group, Verdict verdict, ExitCode code);
/// The end by a signal or by the guardian's loss.
Actions finish_stopped(GroupState& group);
Actions finish_unstartable(GroupState& group, const StartFailure& failure);

Actions start(GroupState& group);
/// Before any worker has run.
Actions abort_start(GroupState& group);
/// A round that could not be started for want of something is tried again for a while; nothing
/// when that time is over.
std::optional<Actions> retry_start(GroupState& group, Instant now);

/// SIGTERM to the workers' groups and to those who left them; killed after the grace.
void ask_to_end(GroupState& group, Actions& actions, Millis grace, Instant now);
/// All workers have exited: left-overs get a moment to exit by themselves, then SIGTERM.
void await_left_overs(const GroupState& group, Actions& actions, Millis grace);
/// The workers were asked to end; whoever doesn't within the grace is killed.
void await_end(GroupState& group, Actions& actions, Millis grace, Instant now);
/// After this time SIGTERM follows `signo`.
Millis time_for_signal(const GroupState& group, int signo, Millis grace, Instant now);
Actions stop_by_signal(GroupState& group, int signo, Instant now);
Actions hurry_by_signal(GroupState& group, int signo, Instant now);
Actions kill(GroupState& group, Millis after);

}  // namespace moves

/// What a coordinated job does otherwise, event by event.
namespace orders {

Actions on_began(GroupState& group);
Actions on_emptied(GroupState& group, const Emptied& e);
Actions on_farewell(GroupState& group);
Actions on_signal(GroupState& group, const SignalArrived& e);
Actions on_guardian_lost(GroupState& group);
Actions on(GroupState& group, const RoundOrdered& e);
Actions on(GroupState& group, const StopOrdered& e);
Actions on(GroupState& group, const SignalOrdered& e);
Actions on(GroupState& group, const LeaseOver& e);
Actions on(GroupState& group, const JobClosed& e);

}  // namespace orders

}  // namespace acc::agent
