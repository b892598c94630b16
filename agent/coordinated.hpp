#pragma once

#include "agent/group_state.hpp"

/// Transitions of the supervisor in a coordinated job, whose rounds the coordinator decides.
/// Included by supervisor.cpp alone.
namespace acc::agent::coordinated {

Actions on_began(GroupState& group);
Actions on_emptied(GroupState& group, const Emptied& e);
Actions on_close_timeout(GroupState& group);
Actions on_startup_over(GroupState& group, Instant now);
Actions on_signal(GroupState& group, const SignalArrived& e);
Actions on_guardian_lost(GroupState& group);
Actions on_hang(GroupState& group, WorkerFailure failure);
Actions on(GroupState& group, const RoundOrdered& e);
Actions on(GroupState& group, const StopOrdered& e);
Actions on(GroupState& group, const SignalOrdered& e);
Actions on(GroupState& group, const LeaseOver& e);
Actions on(GroupState& group, const JobClosed& e);
Actions on(GroupState& group, const GaveUp& e);
Actions on(GroupState& group, const LinkChanged& e);

}  // namespace acc::agent::coordinated
