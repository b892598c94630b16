#pragma once

#include "common/unique_fd.hpp"

#include <sys/types.h>

#include <initializer_list>
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
  /// Before a round: a fresh cgroup if kill_cgroup() was used on this one. Linux 6.13 to at
  /// least 6.18 otherwise kills whatever CLONE_INTO_CGROUP starts in it afterwards.
  void prepare_round();

  struct Member {
    pid_t pid = 0;
    bool is_child = false;  ///< of ours; else known by the cgroup alone
  };
  /// Our children, zombies included, then the other processes of the cgroup, each once.
  [[nodiscard]] std::vector<Member> members() const;
  /// SIGKILL to all of the cgroup at once, where there is one and the kernel can (Linux 5.14).
  void kill_cgroup();
  /// Signals a member that is no child of ours: through a pidfd after a second look at its cgroup,
  /// so that it can't hit a process that got the number meanwhile.
  /// @return whether it was still there
  bool signal_member(pid_t pid, std::initializer_list<int> signals) const;
  /// True when no descendant of ours is left. Zombies that nobody has reaped count as left.
  [[nodiscard]] bool is_empty() const;
  /// What is still there, zombies left out. Only the first `named` are looked up, the others have
  /// no name.
  [[nodiscard]] std::vector<LeftOver> left_over(std::size_t named) const;

 private:
  void make_cgroup(std::string path);

  std::string path_;
  UniqueFd cgroup_;
  bool was_killed_ = false;
};

/// "sleep (pid 71)"; the name is the process's own text and is made printable.
[[nodiscard]] std::string name_and_pid(const LeftOver& process);

enum class ChildState {
  none,  ///< it is no child of ours, or not any more
  alive,
  dead,  ///< a zombie
};
/// One system call. Only a reaped child loses its number, so what this says of a child holds until
/// we reap it.
[[nodiscard]] ChildState look_at_child(pid_t pid);

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
