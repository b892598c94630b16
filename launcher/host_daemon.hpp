#pragma once

#include <functional>
#include <map>
#include <string>

namespace acc::launcher {

using Environment = std::map<std::string, std::string, std::less<>>;

/// The acc-agent that answers on this machine.
struct DaemonFound {
  std::string socket;       ///< empty: none answers
  bool is_of_user = false;  ///< its jobs are this user's only; root has none of those
  std::string why;          ///< none answers: where it was looked for
};

/// The one of ACC_AGENT_SOCKET; else the system's, else this user's own (common/daemon_places). One
/// that isn't named there has to be root's or this user's, as it receives the command and the
/// values of --env.
[[nodiscard]] DaemonFound find_daemon(const Environment& environment,
                                      const std::string& of_system = "/run/acc/agent.sock");

}  // namespace acc::launcher
