#pragma once

#include "common/unique_fd.hpp"

#include <sys/types.h>

#include <string>
#include <vector>

/// Finds and ends every process of a round, also those that left their group and session. Two nets:
/// a cgroup v2 where one may be made, and the sub-reaper relation: whatever loses its parent
/// becomes a child of the agent.
namespace acc::agent {

struct LeftOver {
  pid_t pid = 0;
  std::string name;
  char state = '?';  ///< as in /proc/PID/stat: D is beyond SIGKILL's reach, Z only waits for us
};

class Containment {
 public:
  /// Tries to make the job's cgroup below our own. Without the right to do so, or without cgroup
  /// v2, goes on without.
  Containment();
  ~Containment();
  Containment(const Containment&) = delete;
  Containment& operator=(const Containment&) = delete;

  /// For SpawnRequest::cgroup_fd; -1 without a cgroup.
  [[nodiscard]] int cgroup_fd() const { return cgroup_.get(); }
  [[nodiscard]] const std::string& cgroup_path() const { return path_; }
  /// The kernel refused to start a process inside the cgroup: go on without it.
  void give_up_cgroup();
  /// Before a round: a fresh cgroup if kill_all() was used on this one. Linux 6.13 to at least 6.18
  /// otherwise kills whatever CLONE_INTO_CGROUP starts in it afterwards.
  void prepare_round();

  /// SIGKILL to all that is left: the cgroup at once, then our children. To be called again for
  /// each new orphan.
  void kill_all();
  /// SIGTERM, then SIGCONT, to one of left_over(): sent through a pidfd after a second look, so
  /// that it can't hit a process that got the number meanwhile.
  void terminate(pid_t pid) const;
  /// True when no descendant of ours is left. Zombies that nobody has reaped count as left.
  [[nodiscard]] bool is_empty() const;
  /// What is still there, zombies left out.
  [[nodiscard]] std::vector<LeftOver> left_over() const;

 private:
  void make_cgroup(std::string path);

  std::string path_;
  UniqueFd cgroup_;
  bool was_killed_ = false;
};

/// "sleep (pid 71)"; the name is the process's own text and is made printable.
[[nodiscard]] std::string name_and_pid(const LeftOver& process);

/// Direct children of this process (any thread), zombies included.
std::vector<pid_t> children_of_this_process();
/// The same of another one. One that is born or dies meanwhile may be missing.
std::vector<pid_t> children_of(pid_t pid);
/// Name and state from /proc; state 'X' if it is gone.
LeftOver look_up(pid_t pid);

/// Ends and removes the cgroups of agents that are dead. For the guardian after the loss of its
/// agent, and at a start.
void sweep_dead_cgroups();

}  // namespace acc::agent
