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
#else
inline constexpr bool skip_lease_wait = false;
inline constexpr bool accept_stale_round = false;
inline constexpr bool assign_rank_twice = false;
inline constexpr bool forget_stopped = false;
inline constexpr bool elect_without_majority = false;
#endif

}  // namespace acc::rendezvous::planted
