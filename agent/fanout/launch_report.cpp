#include "agent/fanout/host_losses.hpp"

#include <utility>

namespace acc::agent {

namespace {

bool is_followed_to_its_end(const FanOutState& state) {
  return !state.is_detached && !state.left;
}

OutputLost output_left_there(const RemoteHost& host, const std::string& job) {
  const auto node = host.node.empty() ? "" : "--node " + host.node + " ";
  return {0, 0, "output", "it is there: acc-ctl " + node + "logs " + job};
}

}  // namespace

LostOutput with_output_left_there(LostOutput lost, const ClusterLaunch& launch,
                                  const FanOutState& state) {
  if (!is_followed_to_its_end(state)) return lost;
  for (HostIndex i = 0; i < lost.size(); ++i) {
    const auto& host = state.hosts[i];
    if (!host.job.empty() && !host.exit_code)
      lost[i].push_back(output_left_there(launch.hosts[i], host.job));
  }
  return lost;
}

std::vector<Losses> losses_to_report(const LostOutput& lost, const ClusterLaunch& launch,
                                     const FanOutState& state) {
  std::vector<Losses> all;
  for (HostIndex i = 0; i < lost.size(); ++i) {
    if (i == 0 && state.hosts[i].exit_code) continue;
    for (const auto& one : lost[i])
      all.push_back({launch.hosts[i].name + ": " + one.where, one.why, one.bytes, one.lines});
  }
  return all;
}

}  // namespace acc::agent
