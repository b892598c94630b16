#include "agent/daemon/state_mark.hpp"

#include "common/host_name.hpp"
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
#include <utility>

namespace acc::agent::daemon {

namespace {

constexpr std::string_view kMark = "acc-agent state folder\n";
constexpr const char* kLock = "lock";
constexpr int kReadFolder = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;

enum class Lock : std::uint8_t { missing, marked, plain, foreign };

/// Sorted.
Result<std::vector<std::string>> read_entries(int parent, const char* name,
                                              const std::string& path) {
  UniqueFd fd{::openat(parent, name, kReadFolder)};
  DIR* const entries = fd ? ::fdopendir(fd.get()) : nullptr;
  if (entries == nullptr) return system_error(errno, "read the folder '" + path + "'");
  (void)fd.release();
  std::vector<std::string> names;
  while (errno = 0, true) {
    const dirent* const entry = ::readdir(entries);
    if (entry == nullptr) break;
    const std::string_view one{entry->d_name};
    if (one != "." && one != "..") names.emplace_back(one);
  }
  const int failed = errno;
  ::closedir(entries);
  if (failed != 0) return system_error(failed, "read the folder '" + path + "'");
  std::ranges::sort(names);
  return names;
}

Result<std::string> read_start(int fd) {
  std::array<char, 128> bytes{};
  const auto n = ::pread(fd, bytes.data(), bytes.size(), 0);
  if (n < 0) return system_error(errno, "read");
  return std::string{bytes.data(), static_cast<std::size_t>(n)};
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
Result<Lock> judge_lock(int folder, const std::string& path, UniqueFd& fd) {
  const auto failure = [&]() -> Result<Lock> {
    if (errno == ENOENT) return Lock::missing;
    if (errno == ELOOP) return Lock::foreign;
    return system_error(errno, "open '" + path + "/lock'");
  };
  struct stat info {};
  if (::fstatat(folder, kLock, &info, AT_SYMLINK_NOFOLLOW) != 0) return failure();
  if (!is_own_file(info)) return Lock::foreign;  // opening a device may do something
  fd.reset(::openat(folder, kLock, O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  if (!fd || ::fstat(fd.get(), &info) != 0) return failure();
  if (!is_own_file(info)) return Lock::foreign;
  const auto text = read_start(fd.get());
  if (text.has_error()) return system_error(text.error().errnum, "read '" + path + "/lock'");
  if (text->starts_with(kMark)) return Lock::marked;
  return (info.st_mode & 07777) == 0600 && is_plain(*text) ? Lock::plain : Lock::foreign;
}

/// @param mode  nullopt: any
bool is_folder(int parent, const std::string& name, std::optional<mode_t> mode) {
  struct stat info {};
  return ::fstatat(parent, name.c_str(), &info, AT_SYMLINK_NOFOLLOW) == 0 &&
         S_ISDIR(info.st_mode) && info.st_uid == ::geteuid() &&
         (!mode || (info.st_mode & 07777) == *mode);
}

/// A job's folder, or what a crash left of one: after a loss of power that may be one without its
/// record, which the daemon then sets aside.
Result<bool> is_of_job(int jobs, const std::string& name, const std::string& path) {
  const auto names = read_entries(jobs, name.c_str(), path);
  if (names.has_error()) {
    const int why = names.error().errnum;
    if (why == ENOTDIR || why == ELOOP) return false;
    return names.error();
  }
  const auto holds = [&](std::string_view one) {
    return std::ranges::find(*names, one) != names->end();
  };
  const auto is_known = [](const std::string& one) {
    const std::string_view plain =
        one.ends_with(".new") ? std::string_view{one}.substr(0, one.size() - 4) : one;
    return one == "user" || plain == kRecord || plain == kYamlConfig || plain == kJsonConfig;
  };
  if (!std::ranges::all_of(*names, is_known)) return false;
  if (name.starts_with(kHalfMade) || holds(kRecord)) return true;
  return is_folder(jobs, name, 0711) &&
         (holds("user") || !(holds(kYamlConfig) || holds(kJsonConfig)));
}

/// The first in `name`, one of the state folder's own, that `is_own` doesn't know; nullopt: none.
template <class IsOwn>
Result<std::optional<std::string>> stranger_below(int state, const std::string& path,
                                                  const std::string& name, IsOwn is_own) {
  const auto below = path + "/" + name;
  const UniqueFd folder{::openat(state, name.c_str(), kReadFolder)};
  if (!folder) return system_error(errno, "read the folder '" + below + "'");
  const auto names = read_entries(folder.get(), ".", below);
  if (names.has_error()) return names.error();
  for (const auto& one : *names) {
    const Result<bool> is_known = is_own(folder.get(), one, below + "/" + one);
    if (is_known.has_error()) return is_known.error();
    if (!*is_known) return std::optional{name + "/" + one};
  }
  return std::optional<std::string>{};
}

/// What acc-launch notes for its user, in the state folder of that user's daemon: times that
/// --hang_timeout auto has learned, and launches of --hosts. It may make the folder first.
bool is_of_launcher(int state, const std::string& name) {
  return (name == "hang" || name == "launches") && is_folder(state, name, std::nullopt);
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
Result<std::optional<std::string>> stranger_in(int state, const std::string& path,
                                               const std::vector<std::string>& names,
                                               bool is_shared) {
  constexpr std::array<std::string_view, 9> kNotes{"events",      "events.new", "drained",
                                                   "drained.new", "machine",    "machine.new",
                                                   "token.key",   kLock,        "lost+found"};
  for (const auto& name : names) {
    std::optional<std::string> found;
    if (name == "jobs" || name == "trash") {
      if (!is_folder(state, name, name == "jobs" ? 0711 : 0700)) return std::optional{name};
      const auto is_removed = [](int, const std::string& one, const std::string&) {
        return Result<bool>{one.find('.', 1) != std::string::npos};  // ID.RANDOM
      };
      auto below = name == "jobs" ? stranger_below(state, path, name, is_of_job)
                                  : stranger_below(state, path, name, is_removed);
      if (below.has_error()) return below.error();
      found = *below;
    } else if (name == "damaged") {
      if (!is_folder(state, name, 0700)) found = name;
    } else if (!is_shared && std::ranges::find(kNotes, name) == kNotes.end() &&
               !is_check_file(name) && !name.starts_with("agent.sock") &&
               !is_of_launcher(state, name)) {
      found = name;
    }
    if (found) return found;
  }
  return std::optional<std::string>{};
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
  const auto text = std::string{kMark} + std::to_string(::getpid()) + ' ' + host_name() + '\n';
  return ::pwrite(lock, text.data(), text.size(), 0) == static_cast<ssize_t>(text.size()) &&
         ::ftruncate(lock, static_cast<off_t>(text.size())) == 0 && ::fsync(lock) == 0;
}

/// The first entry that keeps the folder from being this daemon's; nullopt: none.
Result<std::optional<std::string>> stranger_beside(Lock lock, int folder, const std::string& path,
                                                   const std::vector<std::string>& names) {
  if (lock == Lock::marked) return std::optional<std::string>{};
  const bool is_shared = is_of_service(path);
  if (lock == Lock::plain || (lock == Lock::missing && is_shared))
    return stranger_in(folder, path, names, is_shared);
  const auto is_other = [&](const std::string& name) {
    const bool is_new = lock == Lock::missing && is_of_launcher(folder, name);
    return name != "lost+found" && name != kLock && !is_new;
  };
  const auto other = std::ranges::find_if(names, is_other);
  if (other != names.end()) return std::optional{*other};
  return lock == Lock::foreign ? std::optional<std::string>{kLock} : std::nullopt;
}

Result<void> take_lock(int lock, const std::string& path) {
  if (::flock(lock, LOCK_EX | LOCK_NB) == 0) return {};
  if (errno != EWOULDBLOCK) return system_error(errno, "lock '" + path + "/lock'");
  return Error{Errc::unavailable,
               "another acc-agent uses the state folder '" + path + "' (it holds its lock)"};
}

}  // namespace

Result<UniqueFd> lock_state_folder(int folder, const std::string& path) {
  // The names first: who makes a lock makes the rest after it.
  auto names = read_entries(folder, ".", path);
  if (names.has_error()) return names.error();
  UniqueFd fd;
  const auto lock = judge_lock(folder, path, fd);
  if (lock.has_error()) return lock.error();
  if (*lock == Lock::marked || *lock == Lock::plain) {
    if (auto taken = take_lock(fd.get(), path); taken.has_error()) return taken.error();
    names = read_entries(folder, ".", path);  // which a predecessor may have changed until now
    if (names.has_error()) return names.error();
  }
  const auto stranger = stranger_beside(*lock, folder, path, *names);
  if (stranger.has_error()) return stranger.error();
  if (*stranger) return refusal(path, **stranger, *lock);
  if (*lock == Lock::missing) {
    fd.reset(::openat(folder, kLock, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
    if (!fd && errno == EEXIST)
      return Error{Errc::unavailable,
                   "another acc-agent has just taken the state folder '" + path + "' for its own"};
    if (!fd) return system_error(errno, "open '" + path + "/lock'");
    if (auto taken = take_lock(fd.get(), path); taken.has_error()) return taken.error();
  }
  if (!write_mark(fd.get())) return system_error(errno, "write '" + path + "/lock'");
  return fd;
}

LockHolder holder_in(std::string_view lock) {
  if (lock.starts_with(kMark)) lock.remove_prefix(kMark.size());
  const auto words = split(trim(lock), ' ');
  return {std::string{words[0]}, words.size() > 1 ? std::string{words[1]} : std::string{}};
}

bool is_check_file(std::string_view name) {
  return name.starts_with("check-") && (name.ends_with(".yaml") || name.ends_with(".json"));
}

Result<std::vector<std::string>> entries_of(int folder, const std::string& path) {
  return read_entries(folder, ".", path);
}

}  // namespace acc::agent::daemon
