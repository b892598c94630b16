#pragma once

#include "common/error.hpp"
#include "common/unique_fd.hpp"

#include <string>
#include <string_view>
#include <vector>

/// How an acc-agent knows its own state folder: by the first line of the file `lock` in it. In any
/// other folder nothing may be removed, moved or given another mode, whatever the names there.
namespace acc::agent::daemon {

inline constexpr std::string_view kHalfMade = ".new-";  ///< a job's folder before it has its name
inline constexpr const char* kRecord = "job.json";
inline constexpr const char* kYamlConfig = "config.yaml";
inline constexpr const char* kJsonConfig = "config.json";

/// Locks the state folder and marks it, with this process as its holder. A folder that is empty
/// (a fresh file system has lost+found, and in a user's own acc-launch may have made hang and
/// launches) gets the mark; so does one of a version before the mark, if all that is in it is what
/// that version made, beside folders of other services in the one that
/// systemd made for this ($STATE_DIRECTORY).
/// @param folder  one that nobody else may write to
/// @param path  for messages
/// @return not_permitted: it isn't known for a state folder, and is left as it was. unavailable:
/// another process has the lock. Else what the system said: it can't be read or written.
[[nodiscard]] Result<UniqueFd> lock_state_folder(int folder, const std::string& path);

/// Who wrote `lock`. Through a file system that machines share it may be held on another one.
struct LockHolder {
  std::string pid;   ///< empty: it names none
  std::string host;  ///< empty: an older daemon's
};
[[nodiscard]] LockHolder holder_in(std::string_view lock);

/// The name of a job file's copy while it is checked, as job_file_loader.cpp makes it.
[[nodiscard]] bool is_check_file(std::string_view name);

/// Names in a folder, sorted. @param path  for messages
[[nodiscard]] Result<std::vector<std::string>> entries_of(int folder, const std::string& path);

}  // namespace acc::agent::daemon
