#pragma once

#include "common/error.hpp"
#include "common/unique_fd.hpp"

#include <sys/types.h>

#include <string>
#include <vector>

namespace acc {

/// A place for the control sockets of one user's plain jobs: BASE/OWN/jobs.
struct ControlFolder {
  std::string base;  ///< exists already
  std::string own;   ///< of this user alone, made if it is missing
  bool is_base_shared = false;  ///< by all users, as /tmp

  [[nodiscard]] std::string path() const { return base + "/" + own + "/jobs"; }
};

/// The places in the order in which an agent tries them: $XDG_RUNTIME_DIR/acc if `runtime_folder`
/// is an absolute path, `run_user`/UID/acc, `shared`/acc-UID. An agent and acc-ctl need not have the
/// same environment (su, cron, docker exec), so acc-ctl looks at all of them.
[[nodiscard]] std::vector<ControlFolder> control_folders(const char* runtime_folder, uid_t uid,
                                                         const std::string& run_user = "/run/user",
                                                         const std::string& shared = "/tmp");

/// Opens the folder `jobs` of a place (O_PATH) and follows no links on the way. A folder below the
/// base that belongs to another user, or that others may write to, is an error (not_permitted), as
/// is a base of another user that isn't shared. `makes`: missing folders below the base are made
/// (0700); else they are an error (not_found).
[[nodiscard]] Result<UniqueFd> open_control_folder(const ControlFolder& place, bool makes);

/// Whether this user's daemon may be looked for below a folder ($XDG_RUNTIME_DIR): it is this
/// user's or root's, and not all may write to it. In another user's (`su` without `-`) that user
/// may listen, and must receive no commands. A folder that is missing holds none.
[[nodiscard]] bool may_hold_daemon(const std::string& folder);

}  // namespace acc
