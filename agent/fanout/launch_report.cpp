#include "agent/fanout/launch_report.hpp"

#include "agent/fanout/trouble_text.hpp"
#include "common/exit_codes.hpp"
#include "common/exit_status.hpp"

#include <algorithm>
#include <array>
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

// Of an end that one host's part alone has.
std::string verdict_of(int exit_code) {
  if (exit_code == to_int(ExitCode::unfit)) return std::string{to_string(Outcome::unfit)};
  if (exit_code == to_int(ExitCode::unkillable)) return std::string{to_string(Outcome::unkillable)};
  if (exit_code == to_int(ExitCode::agent_lost)) return "agent_lost";  // as in a short report
  if (exit_code == to_int(ExitCode::nodes_missing))
    return std::string{to_string(Outcome::nodes_missing)};
  constexpr std::array kRefusals{ExitCode::failure, ExitCode::usage, ExitCode::resources,
                                 ExitCode::output, ExitCode::refused};
  const bool is_refusal = std::ranges::any_of(
      kRefusals, [exit_code](ExitCode code) { return to_int(code) == exit_code; });
  return std::string{to_string(is_refusal ? Outcome::cannot_start : Outcome::failed)};
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

std::vector<Losses> own_losses_to_report(std::vector<Losses> lost) {
  for (auto& one : lost) one.where = "acc-launch --hosts: " + one.where;
  return lost;
}

std::optional<ReportEnd> end_to_report(const FanOutState& state,
                                       const std::vector<std::string>& names, int exit_code,
                                       int reported) {
  if (reported == exit_code) return std::nullopt;
  const bool is_stopped = state.stop_signal != 0 && exit_code == 128 + state.stop_signal;
  if (!is_stopped && state.missed && state.is_rest_told) {
    const auto& host = state.hosts[*state.missed];
    return ReportEnd{verdict_of(exit_code), exit_code,
                     names[*state.missed] + ": " + why_missed(host) + ", and nothing starts it again",
                     0};
  }
  if (!is_stopped) return std::nullopt;
  const bool have_all_ended = std::ranges::all_of(
      state.hosts, [](const FanOutHost& host) { return host.exit_code.has_value(); });
  return ReportEnd{std::string{to_string(Outcome::stopped)}, exit_code,
                   signal_name(state.stop_signal) + " to acc-launch" +
                       (have_all_ended ? "" : ", which didn't wait for the end of all hosts"),
                   state.stop_signal};
}

}  // namespace acc::agent
