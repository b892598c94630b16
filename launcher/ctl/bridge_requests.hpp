#pragma once

#include "launcher/ctl/bridge_command.hpp"

#include <cstdint>
#include <map>
#include <optional>
#include <string>

/// The requests of a bridge to the daemon's API: each one's method, target and body; pure.
namespace acc::ctl {

enum class BridgeAsk { check, submit, find, state, stop, signal };

struct AskDaemon {
  BridgeAsk ask{};
  std::string method;
  std::string target;
  std::string body{};
};

/// What the life line says of a job before its start.
struct BridgeContext {
  std::string folder = "/";
  std::map<std::string, std::string> variables;
};

/// The name under which a part of a launch is submitted. Two parts may be on one node; its operator
/// reads which is which.
[[nodiscard]] std::string bridge_job_name(const BridgeWish& wish);

[[nodiscard]] AskDaemon check_request(const BridgeWish& wish, const BridgeContext& context);
[[nodiscard]] AskDaemon submit_request(const BridgeWish& wish, const BridgeContext& context);
/// Whether there is a job of that name.
[[nodiscard]] AskDaemon find_request(const BridgeWish& wish);
[[nodiscard]] AskDaemon state_request(const BridgeWish& wish, const std::string& job);
[[nodiscard]] AskDaemon stop_request(const BridgeWish& wish, const std::string& job);
[[nodiscard]] AskDaemon signal_request(const BridgeWish& wish, const std::string& job, int signo);

/// Where the job's output is, and goes on. `from` nothing: from its end on.
[[nodiscard]] std::string output_target(const BridgeWish& wish, const std::string& job, bool is_err,
                                        std::optional<std::uint64_t> from);
/// Where the events of the job are, from this byte on.
[[nodiscard]] std::string events_target(const BridgeWish& wish, const std::string& job,
                                        std::uint64_t from);

}  // namespace acc::ctl
