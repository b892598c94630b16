#pragma once

#include "agent/health_probes.hpp"
#include "common/duration.hpp"
#include "common/error.hpp"

#include <optional>
#include <string>
#include <string_view>
#include <vector>

/// The prober: a process that runs each probe of one check in a child of its own, waits for them
/// for a bounded time, and prints what they found. acc-launch executes itself as one.
namespace acc::agent::health {

/// argv[0] of a prober, and its name in ps; argv[1] is the request.
inline constexpr const char* kProberName = "acc:health";

struct ProbeRequest {
  std::vector<Probe> probes;
  Millis patience{5'000};  ///< for each probe; they run side by side
  ProbeSetting setting;
};

[[nodiscard]] std::string encode(const ProbeRequest& request);
[[nodiscard]] std::optional<ProbeRequest> decode_request(std::string_view text);

[[nodiscard]] std::string encode(const std::vector<ProbeRun>& runs);
/// Total: any bytes give runs or nothing.
[[nodiscard]] std::optional<std::vector<ProbeRun>> decode_runs(std::string_view text);

/// Runs the probes, each in a child with its own process group, which is killed when its time is
/// over. Only for a process without threads.
/// @param stop_fd  readable: the probes are killed, and the result is empty; -1: none
[[nodiscard]] std::vector<ProbeRun> run_probes(const ProbeRequest& request, int stop_fd = -1);

/// If argv[0] says that this process is a prober: does its work and returns its exit code.
std::optional<int> prober_main(int argc, char** argv);

}  // namespace acc::agent::health
