#include "agent/containment.hpp"

#include "agent/process_stat.hpp"
#include "agent/small_file.hpp"
#include "common/log.hpp"
#include "common/random.hpp"
#include "common/text.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <poll.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstdio>
#include <tuple>
#include <unordered_set>
#include <utility>

namespace acc::agent {

namespace {

constexpr std::string_view kPrefix =
    "acc-launch-job-";  // ours alone: what can be locked under it is killed

bool is_cgroup2(const char* folder) {
  struct statfs info {};
  return ::statfs(folder, &info) == 0 && info.f_type == CGROUP2_SUPER_MAGIC;
}

std::string cgroup_name() {
  return std::string{kPrefix} + std::to_string(::getpid()) + '-' + random_name();
}

// An agent holds a lock on the folder of its cgroup as long as it lives, which needs no look at a
// pid: that may be unreadable (hidepid), or belong to another process (another pid namespace). What
// can be opened for reading can be locked: its mode lets other users pass, but not open it.
constexpr mode_t kLockedFolder = 0711;

bool lock_folder(int fd) { return ::flock(fd, LOCK_EX | LOCK_NB) == 0; }

UniqueFd open_and_lock(const std::string& path) {
  UniqueFd folder{::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)};
  return folder && lock_folder(folder.get()) ? std::move(folder) : UniqueFd{};
}

// Its members were killed: the kernel reports when the last of them has left.
void await_empty(const std::string& path) {
  constexpr int kPatienceMs = 200;
  const UniqueFd events{::open((path + "/cgroup.events").c_str(), O_RDONLY | O_CLOEXEC)};
  pollfd changed{events.get(), POLLPRI, 0};
  std::array<char, 256> text{};
  while (events) {
    const auto got = ::pread(events.get(), text.data(), text.size(), 0);
    const std::string_view read{text.data(), static_cast<std::size_t>(std::max<ssize_t>(got, 0))};
    if (read.find("populated 1") == std::string_view::npos) return;
    if (::poll(&changed, 1, kPatienceMs) <= 0) return;
  }
}

bool is_linked(const std::string& path, int fd) {
  struct stat there {
  }, ours{};
  return ::stat(path.c_str(), &there) == 0 && ::fstat(fd, &ours) == 0 &&
         there.st_ino == ours.st_ino && there.st_dev == ours.st_dev;
}

/// A new cgroup below `base`, which ends with a slash, and the lock on it; empty: there can be
/// none. An agent that sweeps may come between mkdir and lock, and takes it for one of the dead.
std::pair<std::string, UniqueFd> make_cgroup(const std::string& base) {
  constexpr int kTries = 100;
  for (int i = 0; i < kTries; ++i) {
    std::string path = base + cgroup_name();
    if (::mkdir(path.c_str(), kLockedFolder) != 0) break;
    auto folder = open_and_lock(path);
    if (folder && is_linked(path, folder.get())) return {std::move(path), std::move(folder)};
    ::rmdir(path.c_str());
  }
  return {};  // without the lock others would think us dead
}

std::vector<std::string> job_cgroups(const std::string& base) {
  std::vector<std::string> paths;
  DIR* const folder = ::opendir(base.c_str());
  if (folder == nullptr) return paths;
  while (const dirent* entry = ::readdir(folder)) {
    const std::string_view name = entry->d_name;
    if (name.starts_with(kPrefix) && entry->d_type == DT_DIR) {
      paths.push_back(base + '/' + entry->d_name);
    }
  }
  ::closedir(folder);
  return paths;
}

}  // namespace

std::string own_cgroup() {
  const char* root = is_cgroup2("/sys/fs/cgroup") ? "/sys/fs/cgroup" : "/sys/fs/cgroup/unified";
  if (!is_cgroup2(root)) return {};
  const std::string text = read_small_file("/proc/self/cgroup");
  const auto begin = text.rfind("0::");
  if (begin == std::string::npos || (begin != 0 && text[begin - 1] != '\n')) return {};
  const auto end = text.find('\n', begin);
  const std::string path = text.substr(begin + 3, end - begin - 3);
  return path == "/" ? root : root + path;
}

void sweep_dead_cgroups() {
  const std::string base = own_cgroup();
  if (base.empty()) return;
  for (const auto& path : job_cgroups(base)) {
    // Held until it is removed: an agent that has made it a moment ago and comes to lock it finds
    // it taken, and makes another.
    const auto folder = open_and_lock(path);
    if (!folder) continue;  // its owner lives
    write_small_file(path + "/cgroup.kill", "1");
    ::rmdir(path.c_str());  // fails while its members are dying: the next one to come by removes it
  }
}

Containment::Containment() {
  const std::string base = own_cgroup();
  if (base.empty() || ::access(base.c_str(), W_OK) != 0) return;
  std::tie(path_, cgroup_) = make_cgroup(base + '/');
}

void Containment::prepare_round() {
  if (!was_killed_) return;
  was_killed_ = false;
  const std::string base = path_.substr(0, path_.rfind('/') + 1);
  give_up_cgroup();
  if (!base.empty()) std::tie(path_, cgroup_) = make_cgroup(base);
}

Containment::~Containment() {
  give_up_cgroup();
  drop_reserve();
  for (const auto& path : dropped_) await_empty(path);
  remove_dropped();
}

void Containment::give_up_cgroup() {
  cgroup_.reset();
  if (!path_.empty()) ::rmdir(path_.c_str());
  path_.clear();
}

void Containment::reserve(pid_t pid) {
  drop_reserve();
  remove_dropped();
  if (path_.empty()) return;
  std::tie(reserve_path_, reserve_) = make_cgroup(path_.substr(0, path_.rfind('/') + 1));
  if (!reserve_ || !write_small_file(reserve_path_ + "/cgroup.procs", std::to_string(pid)))
    drop_reserve();
}

bool Containment::use_reserve() {
  if (reserve_path_.empty()) return false;
  if (!path_.empty()) dropped_.push_back(std::move(path_));
  path_ = std::exchange(reserve_path_, {});
  cgroup_ = std::move(reserve_);
  was_killed_ = false;
  remove_dropped();
  return true;
}

void Containment::drop_reserve() {
  reserve_.reset();
  if (reserve_path_.empty()) return;
  write_small_file(reserve_path_ + "/cgroup.kill", "1");
  dropped_.push_back(std::exchange(reserve_path_, {}));
}

void Containment::remove_dropped() {
  std::erase_if(dropped_, [](const std::string& path) {
    return ::rmdir(path.c_str()) == 0 || errno != EBUSY;
  });
}

// "12 34 " or a line each. Numbers that mean no single process are left out.
static void append_pids(std::vector<pid_t>& pids, const std::string& text) {
  const char* at = text.data();
  const char* const end = at + text.size();
  while (at < end) {
    pid_t pid = 0;
    const auto parsed = std::from_chars(at, end, pid);
    if (parsed.ec == std::errc{} && pid > 1) pids.push_back(pid);
    at = parsed.ptr + 1;
  }
}

static std::vector<pid_t> children_below(const std::string& tasks) {
  std::vector<pid_t> children;
  // Children belong to the thread that made them; orphans are given to some thread of the
  // sub-reaper.
  DIR* const threads = ::opendir(tasks.c_str());
  if (threads == nullptr) return children;
  while (const dirent* entry = ::readdir(threads)) {
    if (entry->d_name[0] == '.') continue;
    append_pids(children, read_small_file(tasks + '/' + entry->d_name + "/children"));
  }
  ::closedir(threads);
  return children;
}

std::vector<pid_t> children_of_this_process() { return children_below("/proc/self/task"); }

std::vector<pid_t> children_of(pid_t pid) {
  return children_below("/proc/" + std::to_string(pid) + "/task");
}

LeftOver look_up(pid_t pid) {
  auto found = read_process_stat(pid);
  return {pid, std::move(found.name), found.state};
}

static std::vector<pid_t> cgroup_members(const std::string& path) {
  std::vector<pid_t> members;
  if (path.empty()) return members;
  append_pids(members, read_small_file(path + "/cgroup.procs"));
  return members;
}

ChildState look_at_child(pid_t pid) {
  siginfo_t info{};
  if (::waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOHANG | WNOWAIT) != 0)
    return ChildState::none;
  return info.si_pid == pid ? ChildState::dead : ChildState::alive;
}

void Containment::kill_cgroup() {
  if (path_.empty()) return;
  was_killed_ = write_small_file(path_ + "/cgroup.kill", "1") || was_killed_;
}

std::vector<Containment::Member> Containment::members() const {
  std::vector<Member> members;
  std::unordered_set<pid_t> children;
  for (const pid_t pid : children_of_this_process()) {
    if (!is_helper(pid) && children.insert(pid).second) members.push_back({pid, true});
  }
  for (const pid_t pid : cgroup_members(path_)) {
    if (!children.contains(pid)) members.push_back({pid, false});
  }
  return members;
}

bool Containment::signal_member(pid_t pid, std::initializer_list<int> signals) const {
  const UniqueFd pidfd{static_cast<int>(::syscall(SYS_pidfd_open, pid, 0U))};
  if (!pidfd || path_.empty()) return false;
  const std::string name = path_.substr(path_.rfind('/'));
  const std::string cgroups = read_small_file("/proc/" + std::to_string(pid) + "/cgroup");
  if (cgroups.find(name + '\n') == std::string::npos) return false;
  for (const int signo : signals) ::syscall(SYS_pidfd_send_signal, pidfd.get(), signo, nullptr, 0U);
  return true;
}

std::string name_and_pid(const LeftOver& process) {
  // It may have ended before its name was read.
  const auto name = process.name.empty() ? "a process" : printable(process.name, 32);
  return name + " (pid " + std::to_string(process.pid) + ")";
}

std::string name_tracer(pid_t traced) {
  const pid_t tracer = tracer_of(traced);
  return tracer == 0 ? "a debugger" : "its debugger, " + name_and_pid(look_up(tracer));
}

bool Containment::is_empty() const {
  // Every process of a round descends from us, whatever its group, session or cgroup, and an orphan
  // becomes our child: without children there are no descendants.
  siginfo_t info{};
  if (::waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) != 0 && errno == ECHILD) return true;
  return helper_ != 0 && children_of_this_process() == std::vector{helper_};
}

void Containment::adopt(pid_t pid) const {
  if (path_.empty()) return;
  if (!write_small_file(path_ + "/cgroup.procs", std::to_string(pid)))
    log::info("cgroup_refused", {{"pid", pid}, {"errno", errno}});
}

std::vector<LeftOver> Containment::left_over(std::size_t named) const {
  std::vector<LeftOver> alive;
  for (const auto& member : members()) {
    // A cgroup doesn't list its zombies.
    if (member.is_child && look_at_child(member.pid) != ChildState::alive) continue;
    auto process = alive.size() < named ? look_up(member.pid) : LeftOver{member.pid, "", '?'};
    if (process.state != 'Z' && process.state != 'X') alive.push_back(std::move(process));
  }
  return alive;
}

}  // namespace acc::agent
