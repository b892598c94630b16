#pragma once

#include "agent/fanout/fan_out.hpp"
#include "agent/fanout/launch_plan.hpp"
#include "agent/fanout/orders.hpp"
#include "agent/output/losses.hpp"

#include <vector>

/// Output of a job on several hosts that did not get here: what is told of it, and what the report
/// counts. Pure.
namespace acc::agent {

/// Of each host, in the order of the launch.
using LostOutput = std::vector<std::vector<OutputLost>>;

/// With what a host that was given up may still print: its daemon keeps it.
[[nodiscard]] LostOutput with_output_left_there(LostOutput lost, const ClusterLaunch& launch,
                                                const FanOutState& state);
/// What the report lacks. The first host writes it, so it counts what that one lost; unless it was
/// given up.
[[nodiscard]] std::vector<Losses> losses_to_report(const LostOutput& lost,
                                                   const ClusterLaunch& launch,
                                                   const FanOutState& state);

}  // namespace acc::agent
