#pragma once

#include "common/duration.hpp"
#include "common/restart_policy.hpp"
#include "rendezvous/membership.hpp"
#include "tests/simulation/network.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace acc::simulation {

enum class FaultKind {
  kill_agent,   ///< may return as a new incarnation
  power_off,    ///< likewise
  pause,        ///< SIGSTOP to the agent, SIGCONT later
  freeze,       ///< SIGSTOP to all processes of the node, SIGCONT later
  suspend,      ///< the machine sleeps, and CLOCK_BOOTTIME counts it
  vm_pause,     ///< the virtual machine is paused, and its clocks stand still
  set_clock,    ///< its wall clock is set forward
  cut_both,     ///< no packet between `hosts` and the others
  cut_one_way,  ///< none from `hosts` to the others
  slow,         ///< each packet of `hosts` takes longer
  reset,        ///< connections are reset
  signal,       ///< to one agent
  ask_restart,  ///< over the control socket of one agent
  crash_worker,
  lose_guardian,
  duplicate,  ///< another agent with the same node name, elsewhere
  replay,     ///< a frame of an older epoch, again
  /// The current coordinator is killed, or loses power (number 1), once a majority without it can
  /// elect a successor.
  lose_coordinator,
  cut_from_etcd,  ///< `hosts`
  freeze_etcd,
};

struct Fault {
  Time at{0};
  FaultKind kind = FaultKind::pause;
  std::vector<HostId> hosts;
  Time lasts{0};   ///< pause, cuts, slow; kills: until the node comes back, kNever: never
  int number = 0;  ///< signal
};

struct NodePlan {
  std::uint32_t slots = 1;
  Time comes{0};
  bool listens = true;  ///< others may call it for votes
};

/// Everything that a seed determines in advance.
struct Scenario {
  std::uint64_t seed = 0;
  bool quiet = false;  ///< no faults at all
  std::vector<NodePlan> nodes;
  std::uint32_t nodes_min = 1;
  std::uint32_t nodes_max = 1;
  bool stands_alone = false;  ///< the coordinator has its own host
  bool by_etcd = false;       ///< etcd names the coordinator
  bool by_rank = false;       ///< nodes request a rank
  rendezvous::Timings timings;
  RestartPolicy restart;
  Millis grace{3'000};
  Millis join_timeout{60'000};
  bool scale_up_now = false;
  NetworkOptions network;
  Time length{0};      ///< of a worker's work
  double failing = 0;  ///< probability that a worker's failure ends a round
  double start_errors = 0;
  std::int64_t skew_ppm = 0;  ///< clocks run up to this much fast or slow
  bool replays = false;
  bool counts_frames = false;
  std::vector<Fault> faults;
  Time healed{0};  ///< no fault after it
  Time limit{0};   ///< everything must be over
};

/// @param nodes  upper limit
[[nodiscard]] Scenario draw_scenario(std::uint64_t seed, std::uint32_t nodes);
/// Thousands of nodes: one worker fails, then the coordinator is lost.
[[nodiscard]] Scenario large_scenario(std::uint64_t seed, std::uint32_t nodes);
/// No fault; one worker fails in each of `restarts` rounds.
[[nodiscard]] Scenario quiet_scenario(std::uint32_t nodes, std::uint32_t restarts);

/// Like draw_scenario(), with etcd, which has its own faults.
[[nodiscard]] Scenario etcd_scenario(std::uint64_t seed, std::uint32_t nodes);

/// Coordinators are lost one after the other, on hosts that may be busy.
[[nodiscard]] Scenario successions_scenario(std::uint64_t seed, std::uint32_t nodes);

[[nodiscard]] std::string describe(const Scenario& scenario);
[[nodiscard]] std::string_view name_of(FaultKind kind);

}  // namespace acc::simulation
