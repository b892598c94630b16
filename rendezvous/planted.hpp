#pragma once

/// Bugs that the simulation must find: a test of the tests. In every other build they are constants
/// and cost nothing.
namespace acc::rendezvous::planted {

#ifdef ACC_PLANTED_BUGS
inline bool skip_lease_wait = false;
inline bool accept_stale_round = false;
inline bool assign_rank_twice = false;
inline bool forget_stopped = false;
inline bool elect_without_majority = false;
inline bool trust_stopped_clocks = false;
inline bool lease_by_monotonic = false;
inline bool no_lease_timer = false;
inline bool answer_from_belief = false;
inline bool forget_waiting = false;
inline bool start_before_commit = false;
inline bool lead_past_lease = false;
inline bool begin_ended_job = false;
#else
inline constexpr bool skip_lease_wait = false;
inline constexpr bool accept_stale_round = false;
inline constexpr bool assign_rank_twice = false;
inline constexpr bool forget_stopped = false;
inline constexpr bool elect_without_majority = false;
inline constexpr bool trust_stopped_clocks = false;
inline constexpr bool lease_by_monotonic = false;
inline constexpr bool no_lease_timer = false;
inline constexpr bool answer_from_belief = false;
inline constexpr bool forget_waiting = false;
inline constexpr bool start_before_commit = false;
inline constexpr bool lead_past_lease = false;
inline constexpr bool begin_ended_job = false;
#endif

}  // namespace acc::rendezvous::planted
