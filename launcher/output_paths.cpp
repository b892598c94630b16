#include "launcher/output_paths.hpp"

#include "agent/report_keys.hpp"
#include "common/foreign_file.hpp"
#include "common/text.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>

namespace acc::launcher {

namespace {

bool may_pass(int reason) { return reason == EROFS || reason == ENOSPC || reason == EDQUOT; }

/// 0, or why nothing can be made in there.
int why_closed(const std::string& folder) {
  struct stat info {};
  if (::stat(folder.c_str(), &info) != 0) return errno;
  if (!S_ISDIR(info.st_mode)) return ENOTDIR;
  if (info.st_nlink == 0) return ENOENT;  // removed while we are in it
  return ::access(folder.c_str(), W_OK | X_OK) == 0 ? 0 : errno;
}

std::string folder_of(const std::string& path) {
  const auto folder = std::filesystem::path{path}.parent_path().string();
  return folder.empty() ? "." : folder;
}

int why_no_logs(const std::string& folder) {
  std::error_code failed;
  std::filesystem::create_directories(folder, failed);
  return failed ? failed.value() : why_closed(folder);
}

/// A file of another user in a folder as /tmp: no other may take its place.
bool is_held_by_sticky_folder(const std::string& file) {
  struct stat folder {};
  struct stat there {};
  if (::stat(folder_of(file).c_str(), &folder) != 0 || ::lstat(file.c_str(), &there) != 0)
    return false;
  const uid_t user = ::geteuid();
  return user != 0 && (folder.st_mode & S_ISVTX) != 0 && folder.st_uid != user &&
         there.st_uid != user;
}

int why_no_new_file(const std::string& path) {
  const auto behind = file_behind_links(path);
  if (behind.error != 0) return behind.error;
  const auto& file = behind.file;
  return is_held_by_sticky_folder(file) ? EPERM : why_closed(folder_of(file));
}

int why_no_appending(const std::string& path) {
  struct stat info {};
  const auto behind = file_behind_links(path);
  if (behind.error != 0) return behind.error;
  if (::stat(path.c_str(), &info) != 0) return errno == ENOENT ? why_no_new_file(path) : errno;
  if (S_ISDIR(info.st_mode)) return EISDIR;
  if (!behind.is_open && is_planted(info, behind.file)) return EACCES;
  return ::access(path.c_str(), W_OK) == 0 ? 0 : errno;
}

/// /dev/stdout and the like, where that is a file.
bool is_file_of_output(const std::string& path) {
  struct stat info {};
  if (path.empty() || !file_behind_links(path).is_open || ::stat(path.c_str(), &info) != 0 ||
      !S_ISREG(info.st_mode))
    return false;
  for (const int fd : {STDOUT_FILENO, STDERR_FILENO}) {
    struct stat output {};
    if (::fstat(fd, &output) == 0 && output.st_ino == info.st_ino && output.st_dev == info.st_dev)
      return true;
  }
  return false;
}

}  // namespace

int why_no_file(const std::string& path) {
  struct stat info {};
  const auto behind = file_behind_links(path);
  if (behind.error != 0) return behind.error;
  const bool exists = ::stat(path.c_str(), &info) == 0;
  // Written beside it and renamed, but for what our caller has opened, a device or a pipe.
  const bool is_in_place = exists && (behind.is_open || !S_ISREG(info.st_mode));
  if (!is_in_place) return why_no_new_file(path);
  if (S_ISDIR(info.st_mode)) return EISDIR;
  return ::access(path.c_str(), W_OK) == 0 ? 0 : errno;
}

Complaints check_output_paths(agent::JobPlan& plan, bool has_output,
                              std::vector<std::string>& warnings) {
  Complaints complaints;
  const auto judge = [&](const char* flag, const std::string& path, int reason,
                         const char* meanwhile) {
    if (reason == 0) return;
    auto error =
        system_error(reason, std::string{flag} + ": can't write to '" + printable(path) + "'");
    if (may_pass(reason)) return warnings.push_back(error.what + meanwhile);
    complaints.push_back(std::move(error));
  };
  const auto& logs = plan.output.log_dir;
  if (!logs.empty()) {
    judge("--log_dir", logs, why_no_logs(logs),
          ": the job starts all the same, without log files and error files until that is mended");
    plan.output.is_log_dir_closed = !warnings.empty();
  }
  const auto keep = [&](const char* flag, const std::string& path, std::string_view begin,
                        const char* wanted) {
    if (!holds_other_text(path, begin)) return;
    complaints.push_back({Errc::bad_usage, std::string{flag} + ": '" + printable(path) +
                                               "' holds something else than " + wanted +
                                               ", and is left as it is: name another file"});
  };
  if (plan.report_file != "-") keep("--report", plan.report_file, agent::kReportBegin, "a report");
  keep("--events", plan.events_file, "{", "events");
  const auto refuse_output = [&](const char* flag, const std::string& path, const char* instead) {
    if (!is_file_of_output(path)) return;
    complaints.push_back({Errc::bad_usage, std::string{flag} + ": '" + printable(path) +
                                               "' is the file that the output goes to, and one "
                                               "would be written over the other: " +
                                               instead});
  };
  refuse_output("--report", plan.report_file, "--report - adds it to the standard output");
  refuse_output("--events", plan.events_file, "name another file");
  if (!plan.report_file.empty() && plan.report_file != "-")
    judge("--report", plan.report_file, why_no_file(plan.report_file),
          ": the job starts all the same");
  if (plan.report_file == "-" && !has_output)
    complaints.push_back(
        system_error(EBADF, "--report -: the standard output is closed, nothing can be written"));
  if (!plan.events_file.empty())
    judge("--events", plan.events_file, why_no_appending(plan.events_file),
          ": the job starts all the same, and its events are dropped until that is mended");
  const auto& progress = plan.progress_file;
  if (!progress.empty() && ::access(folder_of(progress).c_str(), F_OK) != 0) {
    warnings.push_back("--progress_file: there is no folder '" + printable(folder_of(progress)) +
                       "' yet: as long as '" + printable(progress) +
                       "' doesn't change, no attempt counts as progress");
  }
  return complaints;
}

}  // namespace acc::launcher
