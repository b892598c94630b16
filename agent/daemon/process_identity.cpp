#include "agent/daemon/process_identity.hpp"

#include "agent/process_stat.hpp"
#include "agent/small_file.hpp"
#include "common/host_name.hpp"
#include "common/text.hpp"

#include <dirent.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <mutex>
#include <string_view>
#include <utility>

namespace acc::agent::daemon {

namespace {

UniqueFd open_pid(pid_t pid) {
  return UniqueFd{static_cast<int>(::syscall(SYS_pidfd_open, pid, 0U))};
}

// `use` gets each; it returns whether to go on. @return false: descriptors ran out
bool for_each_with(uid_t uid, const std::string& assignment,
                   const std::function<bool(FoundProcess)>& use) {
  DIR* const folder = ::opendir("/proc");
  if (folder == nullptr) return false;
  const std::string wanted = std::string{'\0'} + assignment + '\0';
  const auto ran_out = [] { return errno == EMFILE || errno == ENFILE || errno == ENOMEM; };
  bool is_whole = true;
  while (const dirent* entry = ::readdir(folder)) {
    const auto pid = parse_number<pid_t>(entry->d_name);
    if (!pid || *pid <= 1 || *pid == ::getpid()) continue;
    const std::string path = std::string{"/proc/"} + entry->d_name;
    struct stat info {};
    if (::stat(path.c_str(), &info) != 0 || info.st_uid != uid) continue;
    errno = 0;
    UniqueFd fd = open_pid(*pid);
    const std::string environment = fd ? '\0' + read_small_file(path + "/environ") : std::string{};
    if (environment.size() <= 1 && ran_out()) {
      is_whole = false;
      break;
    }
    const bool is_meant = environment.find(wanted) != std::string::npos;
    if (is_meant && read_process_stat(*pid).state != 'Z' && !use({*pid, std::move(fd)})) break;
  }
  ::closedir(folder);
  return is_whole;
}

}  // namespace

Result<std::string> read_boot_id() {
  static std::mutex mutex;
  static std::string known;
  const std::lock_guard lock{mutex};
  if (!known.empty()) return known;
  const auto text = read_if_there("/proc/sys/kernel/random/boot_id");
  if (text.has_error()) return text.error();
  known = trim(*text);
  return known;
}

std::string boot_id() {
  const auto id = read_boot_id();
  return id.has_value() ? *id : std::string{};
}

// Only one daemon holds the folder's lock; containers of one machine have its boot in common, and
// clones of a running machine their host's name at most.
std::string daemon_identity(const std::string& state_folder) {
  struct stat info {};
  if (boot_id().empty() || ::stat(state_folder.c_str(), &info) != 0) return {};
  std::array<char, 40> place{};
  std::snprintf(place.data(), place.size(), ".%jx.%jx", static_cast<std::uintmax_t>(info.st_dev),
                static_cast<std::uintmax_t>(info.st_ino));
  return boot_id() + place.data() + '.' + host_name();
}

Result<ProcessIdentity> identity_of(pid_t pid) {
  const auto boot = read_boot_id();
  if (boot.has_error()) return boot.error();
  const auto path = "/proc/" + std::to_string(pid) + "/stat";
  const auto text = read_if_there(path);
  if (text.has_error()) return text.error();
  if (text->empty()) return system_error(ENOENT, "read '" + path + "'");
  return ProcessIdentity{pid, parse_process_stat(*text).start_time, *boot};
}

namespace {

// The process that has this number now. An earlier daemon that couldn't read the boot's id has
// recorded none: then the start time alone tells.
Result<UniqueFd> open_any(const ProcessIdentity& process) {
  const auto boot = read_boot_id();
  if (boot.has_error()) return boot.error();
  const bool is_of_this_boot = process.boot_id.empty() || process.boot_id == *boot;
  if (process.pid <= 1 || !is_of_this_boot) return UniqueFd{};
  UniqueFd fd = open_pid(process.pid);
  // EINVAL: no process has the number, but a thread of one.
  if (!fd && errno != ESRCH && errno != ENOENT && errno != EINVAL)
    return system_error(errno, "watch process " + std::to_string(process.pid));
  return fd;
}

}  // namespace

Result<UniqueFd> open_process(const ProcessIdentity& process) {
  auto fd = open_any(process);
  if (fd.has_error() || !*fd) return fd;
  // Looked at after it was opened: what it is now, this descriptor means.
  const auto text = read_if_there("/proc/" + std::to_string(process.pid) + "/stat");
  if (text.has_error()) return text.error();
  const auto found = parse_process_stat(*text);
  const bool is_dead = found.state == 'Z' || found.state == 'X';
  if (is_dead || found.start_time != process.start_time) return UniqueFd{};
  return fd;
}

Result<UniqueFd> open_process_of(uid_t uid, const ProcessIdentity& process) {
  auto fd = open_any(process);
  if (fd.has_error() || !*fd) return fd;
  struct stat info {};
  const std::string path = "/proc/" + std::to_string(process.pid);
  const bool is_seen = ::stat(path.c_str(), &info) == 0;
  if (!is_seen && errno != ENOENT && errno != ESRCH)
    return system_error(errno, "look at '" + path + "'");
  if (!is_seen || info.st_uid != uid) return UniqueFd{};
  return fd;
}

std::vector<FoundProcess> processes_with(uid_t uid, const std::string& assignment,
                                         std::size_t most) {
  std::vector<FoundProcess> found;
  const bool is_whole = for_each_with(uid, assignment, [&](FoundProcess process) {
    found.push_back(std::move(process));
    return found.size() < most;
  });
  if (!is_whole) found.emplace_back();
  return found;
}

std::uint64_t kill_processes_with(uid_t uid, const std::string& assignment, pid_t spared) {
  std::uint64_t killed = 0;
  (void)for_each_with(uid, assignment, [&](const FoundProcess& process) {
    if (process.pid == spared) return true;
    ::syscall(SYS_pidfd_send_signal, process.fd.get(), SIGKILL, nullptr, 0U);
    ++killed;
    return true;
  });
  return killed;
}

}  // namespace acc::agent::daemon
