#pragma once

#include "agent/fanout/fan_out.hpp"
#include "agent/fanout/launch_plan.hpp"
#include "agent/fanout/orders.hpp"
#include "agent/output/losses.hpp"
#include "agent/report.hpp"

#include <optional>
#include <string>
#include <vector>

/// What the report of a job on several hosts lacks, as the first host's agent writes it: output that
/// did not get here, and an end that another host made. Pure.
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

/// What the launching process lost of the output of all hosts, told apart from what the first host
/// did.
[[nodiscard]] std::vector<Losses> own_losses_to_report(std::vector<Losses> lost);
/// Nothing: the report is right. The first host knows only that it was stopped where another host's
/// part has ended, or where the user didn't wait for all.
/// @param reported  its exit code there
[[nodiscard]] std::optional<ReportEnd> end_to_report(const FanOutState& state,
                                                     const std::vector<std::string>& names,
                                                     int exit_code, int reported);

}  // namespace acc::agent
