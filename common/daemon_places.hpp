#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

namespace acc {

/// Variables that place a user's own acc-agent. Relative paths are ignored.
struct UserFolders {
  std::string runtime;     ///< XDG_RUNTIME_DIR
  std::string state_home;  ///< XDG_STATE_HOME
  std::string home;        ///< HOME
};
/// Of this process.
[[nodiscard]] UserFolders user_folders();

/// Where a user's acc-agent keeps its jobs unless it has --state-dir: $XDG_STATE_HOME/acc, or
/// ~/.local/state/acc.
[[nodiscard]] std::string user_state_folder(const UserFolders& folders);
/// Where it listens unless it has --socket or --state-dir: $XDG_RUNTIME_DIR/acc/agent.sock, or
/// agent.sock in its state folder where that variable isn't set (su, cron, a container).
[[nodiscard]] std::string user_daemon_socket(const UserFolders& folders);

/// A socket at which a user's own acc-agent may listen.
struct DaemonPlace {
  std::string socket;
  bool is_trusted = true;  ///< false: another user may listen there, and must receive no commands
  bool is_of_runtime_folder = false;  ///< of $XDG_RUNTIME_DIR
  /// In a home, which may be other nodes', too, and outlives a boot: a socket there says nothing of
  /// this node.
  bool is_of_state_folder = false;
};
/// All of them, however the daemon's environment differed from ours: below $XDG_RUNTIME_DIR and
/// `run_user`/UID, and in the state folders; root's daemon never listens in these.
[[nodiscard]] std::vector<DaemonPlace> user_daemon_places(
    const UserFolders& folders, uid_t uid, const std::string& run_user = "/run/user");

}  // namespace acc
