#include "agent/daemon/state_mark.hpp"

#include "common/text.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <optional>

namespace acc::agent::daemon {

namespace {

constexpr std::string_view kMark = "acc-agent state folder\n";
constexpr const char* kLock = "lock";
constexpr int kReadFolder = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;

enum class Lock : std::uint8_t { missing, marked, plain, foreign };

/// nullopt: it can't be read. That isn't the same as an empty folder.
std::optional<std::vector<std::string>> read_entries(int folder) {
  UniqueFd copy{::openat(folder, ".", kReadFolder)};
  DIR* const entries = copy ? ::fdopendir(copy.get()) : nullptr;
  if (entries == nullptr) return std::nullopt;
  (void)copy.release();
  std::vector<std::string> names;
  errno = 0;
  while (const dirent* entry = ::readdir(entries)) {
    const std::string_view name{entry->d_name};
    if (name != "." && name != "..") names.emplace_back(name);
  }
  const bool is_whole = errno == 0;
  ::closedir(entries);
  if (!is_whole) return std::nullopt;
  std::ranges::sort(names);
  return names;
}

std::string read_start(int fd) {
  std::array<char, 128> bytes{};
  const auto n = ::pread(fd, bytes.data(), bytes.size(), 0);
  return {bytes.data(), static_cast<std::size_t>(std::max<ssize_t>(n, 0))};
}

bool is_number(std::string_view text) {
  return !text.empty() && text.find_first_not_of("0123456789") == std::string_view::npos;
}

/// What the version before the mark wrote: its process id or, cut off, nothing. Or a mark that was
/// cut off.
bool is_plain(std::string_view text) {
  const bool is_pid = text.ends_with('\n') && is_number(text.substr(0, text.size() - 1));
  return is_pid || kMark.starts_with(text);
}

/// A regular file of this user alone: one with a second name may be another program's.
bool is_own_file(const struct stat& info) {
  return S_ISREG(info.st_mode) && info.st_uid == ::geteuid() && info.st_nlink == 1;
}

/// @param fd  the file, where it was opened
Lock judge_lock(int folder, UniqueFd& fd) {
  struct stat info {};
  if (::fstatat(folder, kLock, &info, AT_SYMLINK_NOFOLLOW) != 0)
    return errno == ENOENT ? Lock::missing : Lock::foreign;
  if (!is_own_file(info)) return Lock::foreign;  // opening a device may do something
  fd.reset(::openat(folder, kLock, O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  if (!fd || ::fstat(fd.get(), &info) != 0 || !is_own_file(info)) return Lock::foreign;
  const auto text = read_start(fd.get());
  if (text.starts_with(kMark)) return Lock::marked;
  return (info.st_mode & 07777) == 0600 && is_plain(text) ? Lock::plain : Lock::foreign;
}

bool is_folder(int parent, const std::string& name, mode_t mode) {
  struct stat info {};
  return ::fstatat(parent, name.c_str(), &info, AT_SYMLINK_NOFOLLOW) == 0 &&
         S_ISDIR(info.st_mode) && info.st_uid == ::geteuid() && (info.st_mode & 07777) == mode;
}

std::optional<std::vector<std::string>> entries_below(int parent, const std::string& name) {
  const UniqueFd folder{::openat(parent, name.c_str(), kReadFolder)};
  return folder ? read_entries(folder.get()) : std::nullopt;
}

/// A job's folder, or what a crash left of one.
bool is_of_job(int jobs, const std::string& name) {
  const auto names = entries_below(jobs, name);
  if (!names) return false;
  const auto is_known = [](const std::string& one) {
    const std::string_view plain =
        one.ends_with(".new") ? std::string_view{one}.substr(0, one.size() - 4) : one;
    return one == "user" || plain == kRecord || plain == "config.yaml";
  };
  return std::ranges::all_of(*names, is_known) &&
         (name.starts_with(kHalfMade) || std::ranges::find(*names, kRecord) != names->end());
}

/// The first in `folder`, one of the state folder's own, that `is_own` doesn't know; nullopt: none.
template <class IsOwn>
std::optional<std::string> stranger_below(int state, const std::string& name, IsOwn is_own) {
  const UniqueFd folder{::openat(state, name.c_str(), kReadFolder)};
  const auto names = folder ? read_entries(folder.get()) : std::nullopt;
  if (!names) return name;
  for (const auto& one : *names)
    if (!is_own(folder.get(), one)) return name + "/" + one;
  return std::nullopt;
}

/// Whether systemd made it for this service (StateDirectory=). Those of acc-launch@.service are
/// beside the daemon's own, in /var/lib/acc.
bool is_of_service(const std::string& path) {
  const char* const given = std::getenv("STATE_DIRECTORY");
  const auto folders = split(given != nullptr ? given : "", ':');
  return std::ranges::find(folders, path) != folders.end();
}

/// An entry by which a folder without a mark can't be told from another program's: what the version
/// before the mark can't have made. nullopt: there is none.
/// @param is_shared  with folders of other services, whatever their names
std::optional<std::string> stranger_in(int state, const std::vector<std::string>& names,
                                       bool is_shared) {
  constexpr std::array<std::string_view, 7> kNotes{
      "events", "events.new", "drained", "drained.new", "token.key", kLock, "lost+found"};
  for (const auto& name : names) {
    std::optional<std::string> found;
    if (name == "jobs") {
      found = is_folder(state, name, 0711) ? stranger_below(state, name, is_of_job) : name;
    } else if (name == "trash") {  // ID.RANDOM
      const auto is_removed = [](int, const std::string& one) {
        return one.find('.', 1) != std::string::npos;
      };
      found = is_folder(state, name, 0700) ? stranger_below(state, name, is_removed) : name;
    } else if (name == "damaged") {
      if (!is_folder(state, name, 0700)) found = name;
    } else if (!is_shared && std::ranges::find(kNotes, name) == kNotes.end() &&
               !is_check_file(name) && !name.starts_with("agent.sock")) {
      found = name;
    }
    if (found) return found;
  }
  return std::nullopt;
}

Error refusal(const std::string& path, const std::string& stranger, Lock lock) {
  std::string why = "and no file 'lock', by which an acc-agent knows its own";
  if (lock == Lock::foreign) why = "and its 'lock' is none of an acc-agent";
  std::string cure = ": name an empty or a new folder with --state-dir";
  if (lock == Lock::plain) {
    why = "and its 'lock' may be another program's";
    cure += ", or move what an earlier acc-agent didn't make out of this one";
  }
  return Error{Errc::not_permitted, "the state folder '" + path + "' has other files in it, as " +
                                        in_quotes(stranger) + ", " + why + cure};
}

/// Over the old text, which has its place on a full disk.
bool write_mark(int lock) {
  const auto text = std::string{kMark} + std::to_string(::getpid()) + '\n';
  return ::pwrite(lock, text.data(), text.size(), 0) == static_cast<ssize_t>(text.size()) &&
         ::ftruncate(lock, static_cast<off_t>(text.size())) == 0 && ::fsync(lock) == 0;
}

}  // namespace

Result<UniqueFd> lock_state_folder(int folder, const std::string& path) {
  const auto names = read_entries(folder);
  if (!names) return system_error(errno, "read the state folder '" + path + "'");
  UniqueFd fd;
  const auto lock = judge_lock(folder, fd);
  if (lock != Lock::marked) {
    const auto is_other = [](const std::string& name) {
      return name != "lost+found" && name != kLock;
    };
    const auto other = std::ranges::find_if(*names, is_other);
    std::optional<std::string> stranger;
    const bool is_shared = is_of_service(path);
    if (lock == Lock::plain || (lock == Lock::missing && is_shared))
      stranger = stranger_in(folder, *names, is_shared);
    else if (other != names->end())
      stranger = *other;
    else if (lock == Lock::foreign)
      stranger = kLock;
    if (stranger) return refusal(path, *stranger, lock);
  }
  if (lock == Lock::missing)
    fd.reset(::openat(folder, kLock, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!fd) return system_error(errno, "open '" + path + "/lock'");
  if (::flock(fd.get(), LOCK_EX | LOCK_NB) != 0)
    return Error{Errc::unavailable,
                 "another acc-agent uses the state folder '" + path + "' (it holds its lock)"};
  if (!write_mark(fd.get())) return system_error(errno, "write '" + path + "/lock'");
  return fd;
}

std::string holder_in(std::string_view lock) {
  if (lock.starts_with(kMark)) lock.remove_prefix(kMark.size());
  return std::string{trim(lock)};
}

bool is_check_file(std::string_view name) {
  return name.starts_with("check-") && name.ends_with(".yaml");
}

std::vector<std::string> entries_of(int folder) {
  return read_entries(folder).value_or(std::vector<std::string>{});
}

}  // namespace acc::agent::daemon
