#include "agent/watch/page_holders.hpp"

#include "agent/process_stat.hpp"

#include <sys/stat.h>

#include <string>
#include <utility>

namespace acc::agent {

namespace {

constexpr int kDeepest = 32;

bool is_alive(const ProcessStat& process) { return process.state != 'X' && process.state != 'Z'; }

/// 0: it isn't a living descendant.
std::uint64_t start_time_of(pid_t process, pid_t worker) {
  const auto found = read_process_stat(process);
  if (!is_alive(found)) return 0;
  pid_t parent = found.parent;
  for (int i = 0; i < kDeepest && parent > 1; ++i) {
    if (parent == worker) return found.start_time;
    parent = read_process_stat(parent).parent;
  }
  return 0;
}

/// Else the pids on its page are other numbers.
bool shares_our_pids(pid_t worker) {
  struct stat ours {};
  struct stat its {};
  const auto path = "/proc/" + std::to_string(worker) + "/ns/pid";
  return ::stat("/proc/self/ns/pid", &ours) == 0 && ::stat(path.c_str(), &its) == 0 &&
         ours.st_ino == its.st_ino && ours.st_dev == its.st_dev;
}

}  // namespace

bool PageHolders::has_ended(LocalRank worker, const heartbeat::Beat& beat, pid_t worker_pid) {
  if (worker.value() >= known_.size()) return false;
  auto& known = known_[worker.value()];
  const auto pid = static_cast<pid_t>(beat.pid);
  if (known.pid != beat.pid) {
    const bool is_child = pid > 1 && pid != worker_pid;
    known = {beat.pid, is_child ? start_time_of(pid, worker_pid) : 0, beat.time_ns};
    // It came and went between two looks.
    return is_child && !is_alive(read_process_stat(pid)) && shares_our_pids(worker_pid);
  }
  if (known.start_time == 0 || std::exchange(known.time_ns, beat.time_ns) != beat.time_ns)
    return false;
  const auto now = read_process_stat(pid);
  if (is_alive(now) && now.start_time == known.start_time) return false;
  known.start_time = 0;
  return true;
}

}  // namespace acc::agent
