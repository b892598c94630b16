#pragma once

#include "agent/fanout/launch_plan.hpp"
#include "agent/guardian_board.hpp"

namespace acc::agent {

/// Runs it to its end. @return the job's exit code. Blocks; call in the agent process of
/// run_guarded.
int run_on_hosts(const ClusterLaunch& launch, const GuardianLink& guardian);

}  // namespace acc::agent
