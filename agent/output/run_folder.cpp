#include "agent/output/run_folder.hpp"

#include "agent/output/file_system_check.hpp"
#include "common/foreign_folder.hpp"
#include "common/log.hpp"
#include "common/made_folder.hpp"
#include "common/text.hpp"
#include "common/unmapped_id.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <system_error>

namespace acc::agent {

// Empty: it can be used.
static std::string why_closed(const char* folder) {
  struct stat info {};
  if (::stat(folder, &info) != 0) return std::strerror(errno);
  if (!S_ISDIR(info.st_mode)) return std::strerror(ENOTDIR);
  if (::access(folder, W_OK | X_OK) != 0) return std::strerror(errno);
  constexpr uid_t kUnmapped = 65534;  // in a user namespace: /tmp of the machine
  const bool is_sticky = (info.st_mode & S_ISVTX) != 0;
  const bool is_of_system = info.st_uid == 0 || (info.st_uid == kUnmapped && is_sticky);
  if (info.st_uid != ::geteuid() && !is_of_system) return "it belongs to another user";
  return !is_sticky && is_writable_by_others(folder)
             ? "others may replace what lies there: chmod +t"
             : "";
}

// Logs go where there is room. Mere error files go to memory if they may: a folder per worker costs
// 30 us on a disk, which 256 workers would notice. A TMPDIR that isn't there is a typo or left from
// another session: it is not made.
std::string RunFolder::base_folder(const OutputPlan& output) {
  if (!output.log_dir.empty()) return output.log_dir;
  const char* temporary = std::getenv("TMPDIR");
  const bool is_named = temporary != nullptr && *temporary != '\0';
  const std::string reason = is_named ? why_closed(temporary) : "";
  if (is_named && reason.empty()) return temporary;
  const bool in_memory = !holds_logs_ && ::access("/dev/shm", W_OK) == 0;
  std::string folder = in_memory ? "/dev/shm" : "/tmp";
  if (is_named)
    detour_ = std::string{"TMPDIR is '"} + printable(temporary) + "', which can't be used (" +
              reason + "): " + (holds_logs_ ? "log files" : "error files") + " go to " + folder;
  return folder;
}

// The user's text; in a name it must not climb out of the folder.
static std::string as_name(const std::string& text) {
  std::string name = text.substr(0, 64);
  for (char& c : name) {
    if (c == '/' || static_cast<unsigned char>(c) < 0x20) c = '_';
  }
  return name;
}

RunFolder::RunFolder(const OutputPlan& output, const std::string& run_id, const std::string& node,
                     const std::string& random)
    : holds_logs_{!output.log_dir.empty() || output.tee.any() || output.redirects.any()},
      is_private_{output.log_dir.empty()},
      path_{base_folder(output) + '/' + (output.log_dir.empty() ? "acc_" : "") + as_name(run_id) +
            '_' + (node.empty() ? "" : as_name(node) + '_') + random} {}

RunFolder::~RunFolder() {
  if (!made_ || holds_logs_ || !file_system_answers(path_)) return;
  std::error_code ignored;  // a folder that can't be removed does no harm
  std::filesystem::remove_all(path_, ignored);
}

std::string attempt_folder(const std::string& run_folder, Round round) {
  return run_folder + "/attempt_" + std::to_string(round.value());
}

bool RunFolder::forget_some(Round before) {
  if (!made_ || holds_logs_ || before == Round{0} || !file_system_answers(path_)) return true;
  constexpr Millis kSlice{3};
  const auto end = std::chrono::steady_clock::now() + kSlice;
  const auto folder = open_made();
  if (!folder) return true;
  const std::string attempt =
      attempt_folder("/proc/self/fd/" + std::to_string(folder.get()), Round{before.value() - 1});
  std::error_code failed;
  std::filesystem::directory_iterator worker{attempt, failed};
  for (; !failed && worker != std::filesystem::directory_iterator{}; worker.increment(failed)) {
    if (std::chrono::steady_clock::now() >= end) return false;
    std::filesystem::remove_all(worker->path(), failed);
    if (failed) return true;  // what can't be removed does no harm
  }
  std::filesystem::remove(attempt, failed);
  return true;
}

UniqueFd RunFolder::open_made() const {
  UniqueFd folder{::open(path_.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)};
  struct stat info {};
  const bool is_same = folder && ::fstat(folder.get(), &info) == 0 && info.st_dev == made_at_.dev &&
                       info.st_ino == made_at_.ino;
  return is_same ? std::move(folder) : UniqueFd{};
}

bool RunFolder::make_worker(Round round, LocalRank local) const {
  const std::string folder = attempt_folder(path_, round) + '/' + std::to_string(local.value());
  return ::mkdir(folder.c_str(), 0755) == 0 || errno == EEXIST;
}

std::string RunFolder::make_attempt(Round round) {
  struct stat info {};
  if (!made_) {
    std::error_code error;
    if (holds_logs_)  // a --log_dir that was removed since the start
      std::filesystem::create_directories(std::filesystem::path{path_}.parent_path(), error);
    // An error file, or output, may show what others must not see.
    if (::mkdir(path_.c_str(), is_private_ ? 0700 : 0755) != 0 && errno != EEXIST) {
      log::info("no_run_folder", {{"folder", path_}, {"errno", errno}});
      return {};
    }
    if (::lstat(path_.c_str(), &info) != 0 || !S_ISDIR(info.st_mode)) return {};
    made_at_ = {info.st_dev, info.st_ino};
    made_ = true;
  } else if (!open_made() && ::lstat(path_.c_str(), &info) == 0) {
    // It was removed, and made anew for log files; or another user put something else there.
    if (!S_ISDIR(info.st_mode) || info.st_uid != ::geteuid()) {
      log::info("run_folder_replaced", {{"folder", path_}});
      return {};
    }
    made_at_ = {info.st_dev, info.st_ino};
  }
  std::string attempt = attempt_folder(path_, round);
  if (::mkdir(attempt.c_str(), 0755) != 0 && errno != EEXIST) return {};
  return attempt;
}

// Some file systems show another owner of what we make: root's, or nobody where root is squashed.
static bool is_of_other_user(uid_t owner) {
  constexpr uid_t kNobody = 65534;
  const bool is_squashed = owner == kNobody && !uid_of_unmapped();
  return owner != ::geteuid() && owner != 0 && !is_squashed;
}

Result<void> make_worker_folder(const std::string& path, bool is_private) {
  if (!is_private) {
    std::error_code failed;
    std::filesystem::create_directories(path, failed);
    if (failed) return system_error(failed.value(), "create folder '" + path + "'");
    return {};
  }
  const auto run_folder = std::filesystem::path{path}.parent_path().parent_path();
  auto made = make_with_parents(run_folder, 0700);
  if (made.has_error()) return made;
  struct stat info {};
  if (::lstat(run_folder.c_str(), &info) != 0 || S_ISLNK(info.st_mode) ||
      is_of_other_user(info.st_uid))
    return system_error(EPERM, "create folder '" + path + "'");
  return make_with_parents(path, 0700);
}

Result<void> link_latest(const std::string& log_dir, const std::string& folder) {
  const std::string link = log_dir + "/latest";
  const std::string fresh = log_dir + "/.latest." + std::to_string(::getpid());
  const std::string target = std::filesystem::path{folder}.lexically_relative(log_dir).string();
  ::unlink(fresh.c_str());
  if (::symlink(target.empty() ? folder.c_str() : target.c_str(), fresh.c_str()) != 0 ||
      ::rename(fresh.c_str(), link.c_str()) != 0) {
    const int why = errno;
    ::unlink(fresh.c_str());
    return system_error(why, "link '" + link + "'");
  }
  return {};
}

}  // namespace acc::agent
