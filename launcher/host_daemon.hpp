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

/// The one of ACC_AGENT_SOCKET; else the system's, else this user's own.
[[nodiscard]] DaemonFound find_daemon(const Environment& environment);

}  // namespace acc::launcher
