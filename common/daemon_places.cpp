#include "common/daemon_places.hpp"

#include "common/control_folders.hpp"

#include <sys/stat.h>

#include <cstdlib>

namespace acc {

namespace {

constexpr const char* kName = "/agent.sock";

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : "";
}

std::string usual_state_folder(const UserFolders& folders) {
  return folders.home + "/.local/state/acc";
}

/// The daemon makes its state folder so that nobody else may write to it. A missing one holds none.
bool is_users_alone(const std::string& folder, uid_t uid) {
  struct stat info {};
  if (::stat(folder.c_str(), &info) != 0) return true;
  return info.st_uid == uid && (info.st_mode & (S_IWGRP | S_IWOTH)) == 0;
}

}  // namespace

UserFolders user_folders() {
  return {variable("XDG_RUNTIME_DIR"), variable("XDG_STATE_HOME"), variable("HOME")};
}

std::string user_state_folder(const UserFolders& folders) {
  return folders.state_home.starts_with('/') ? folders.state_home + "/acc"
                                             : usual_state_folder(folders);
}

std::string user_daemon_socket(const UserFolders& folders) {
  return (folders.runtime.starts_with('/') ? folders.runtime + "/acc"
                                           : user_state_folder(folders)) +
         kName;
}

std::vector<DaemonPlace> user_daemon_places(const UserFolders& folders, uid_t uid,
                                            const std::string& run_user) {
  std::vector<DaemonPlace> places;
  for (const auto& folder : control_folders(folders.runtime.c_str(), uid, run_user)) {
    if (folder.is_base_shared) continue;  // no daemon listens in a base that is shared
    const bool is_of_runtime_folder = places.empty() && folders.runtime.starts_with('/');
    places.push_back({folder.base + "/" + folder.own + kName, may_hold_daemon(folder.base),
                      is_of_runtime_folder});
  }
  if (uid == 0) return places;
  std::vector<std::string> states{user_state_folder(folders)};
  if (states.front() != usual_state_folder(folders)) states.push_back(usual_state_folder(folders));
  for (const auto& state : states) {
    if (state.starts_with('/'))
      places.push_back({state + kName, is_users_alone(state, uid), false, true});
  }
  return places;
}

}  // namespace acc
