#pragma once

#include "agent/fanout/launch_plan.hpp"
#include "agent/fanout/slot_wait.hpp"
#include "agent/guardian_board.hpp"
#include "common/unique_fd.hpp"
#include "rendezvous/secret.hpp"

#include <optional>
#include <string>

namespace acc::agent {

/// How a try to run a job on all hosts ended.
struct ClusterRunEnd {
  int exit_code = 0;
  bool is_to_wait = false;           ///< all are to be asked again, as one has no room
  std::optional<std::string> words;  ///< what is waited for; nothing: it is what was told last
  int late_signal = 0;               ///< a stop signal that came when all had ended; 0: none
};

/// One try: feeds the state machine of fan_out with events and carries out its actions. Blocks.
/// @param secret  for the hosts; nothing: they have their own, or none
/// @param wait    of a launch that waits for room
[[nodiscard]] ClusterRunEnd run_cluster_once(const ClusterLaunch& launch,
                                             const GuardianLink& guardian,
                                             std::optional<rendezvous::SecretBytes> secret,
                                             SlotWait& wait);

/// Signals of the launch, blocked and readable here. Without SIGHUP where that is ignored.
[[nodiscard]] UniqueFd open_hosts_signals();

}  // namespace acc::agent
