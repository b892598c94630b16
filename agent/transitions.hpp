#pragma once

#include "agent/group_state.hpp"

#include <optional>

/// Transitions of the supervisor that both kinds of job share: those of one node, where
/// supervisor.cpp decides all, and coordinated ones (coordinated.hpp). Included by these two alone.
namespace acc::agent::transitions {

inline constexpr Millis kHurriedGrace{2'000};  // after the second Ctrl-C, or all of the grace

/// Whether trying again a moment later may help.
[[nodiscard]] bool is_worth_a_retry(const StartFailure& failure);
[[nodiscard]] StopRequest stop_of(const GroupState& group);
/// Of a round with a first failure.
[[nodiscard]] FailedRound failed_round(const GroupState& group, const Emptied& e);
void append(Actions& actions, const Actions& more);

Actions finish(GroupState& group, const End& end);
/// The end by a signal or by the guardian's loss.
Actions finish_stopped(GroupState& group);

Actions start(GroupState& group);
/// Before any worker has run.
Actions abort_start(GroupState& group);
/// Retries a start that failed for a temporary shortage of something; nothing when the time for
/// retries is over.
std::optional<Actions> retry_start(GroupState& group, Instant now);

/// SIGTERM to the workers' groups and to what workers that have ended left; SIGKILL after the
/// grace.
void ask_to_end(GroupState& group, Actions& actions, Millis grace, Instant now);
/// What workers left has so long to exit by itself before it is asked to.
[[nodiscard]] Millis left_over_time(Millis grace);
/// All workers have exited: left-over processes get a moment to exit by themselves, then SIGTERM.
void await_left_overs(const GroupState& group, Actions& actions, Millis grace);
/// The grace is over and no worker is left: SIGTERM to what they left, if it had none, then
/// SIGKILL.
Actions hurry_left_overs(GroupState& group);
/// The workers were asked to end; those that don't within the grace are killed.
void await_end(GroupState& group, Actions& actions, Millis grace, Instant now);
/// After this time SIGTERM follows `signo`.
Millis time_for_signal(const GroupState& group, int signo, Millis grace, Instant now);
Actions stop_by_signal(GroupState& group, int signo, Instant now);
Actions hurry_by_signal(GroupState& group, int signo, Instant now);
Actions kill(GroupState& group, Millis after);
/// The workers are on their way out: they have no longer than this from now on; 0: kills.
Actions shorten_grace(GroupState& group, Millis grace, Instant now);

}  // namespace acc::agent::transitions
