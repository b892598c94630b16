#pragma once

#include "common/unique_fd.hpp"

#include <sys/types.h>

#include <initializer_list>
#include <string>
#include <vector>

/// Finds and kills every process of a round, also those that left their process group and session,
/// in two ways: by a cgroup v2, where one may be created, and as a sub-reaper: a process that loses
/// its parent becomes a child of the agent.
namespace acc::agent {

struct LeftOver {
  pid_t pid = 0;
  std::string name;
  char state = '?';  ///< as in /proc/PID/stat: D can't be killed, Z is to be reaped by us
};

class Containment {
 public:
  /// Tries to create the job's cgroup below our own. Without permission, or without cgroup v2,
  /// there is none.
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

  /// A child of ours that belongs to no round: it is no member, and the round is empty without it.
  /// 0: there is none.
  void set_helper(pid_t pid) { helper_ = pid; }
  [[nodiscard]] bool is_helper(pid_t pid) const { return pid != 0 && pid == helper_; }
  /// Puts a process into the cgroup, where there is one: what it forks is born there.
  void adopt(pid_t pid) const;

  /// Puts a process that belongs to no round yet into a cgroup of its own, where there are cgroups:
  /// what it forks from now on is born there, and is not the present round's.
  void reserve(pid_t pid);
  /// That cgroup is the round's from now on. @return false: there is none
  bool use_reserve();
  /// What is in it ends, or has ended.
  void drop_reserve();

  struct Member {
    pid_t pid = 0;
    bool is_child = false;  ///< of ours; else known by the cgroup alone
  };
  /// Our children, zombies included, then the other processes of the cgroup, each once.
  [[nodiscard]] std::vector<Member> members() const;
  /// SIGKILL to all of the cgroup at once, where there is one and the kernel can (Linux 5.14).
  void kill_cgroup();
  /// Signals a member that is not our child: through a pidfd, after checking its cgroup again, so
  /// that it can't hit another process that got the same pid meanwhile.
  /// @return whether it was still there
  bool signal_member(pid_t pid, std::initializer_list<int> signals) const;
  /// True when no descendant of ours is left. Zombies that are not reaped count as left.
  [[nodiscard]] bool is_empty() const;
  /// What is still there, zombies left out. Only the first `named` are looked up, the others have
  /// no name.
  [[nodiscard]] std::vector<LeftOver> left_over(std::size_t named) const;

 private:
  void remove_dropped();

  std::string path_;
  UniqueFd cgroup_;
  std::string reserve_path_;  ///< empty: there is none
  UniqueFd reserve_;
  std::vector<std::string> dropped_;  ///< folders of reserves, to be removed when they are empty
  bool was_killed_ = false;
  pid_t helper_ = 0;
};

/// "sleep (pid 71)"; the name is the process's own text and is made printable.
[[nodiscard]] std::string name_and_pid(const LeftOver& process);
/// "its debugger, gdb (pid 71)": of a process that is traced.
[[nodiscard]] std::string name_tracer(pid_t traced);

enum class ChildState {
  none,  ///< it is not our child, or no longer
  alive,
  dead,  ///< a zombie
};
/// One system call. The pid of a child is not reused before it is reaped, so the answer holds until
/// we reap it.
[[nodiscard]] ChildState look_at_child(pid_t pid);

/// Direct children of this process (any thread), zombies included.
std::vector<pid_t> children_of_this_process();
/// The same of another one. One that is created or exits meanwhile may be missing.
std::vector<pid_t> children_of(pid_t pid);
/// Name and state from /proc; state 'X' if it is gone.
LeftOver look_up(pid_t pid);

/// Our own cgroup v2 as a folder: of the unified mount, or the one beside v1 on hybrid hosts. Empty
/// if there is none.
[[nodiscard]] std::string own_cgroup();

/// Kills the processes in cgroups of dead agents, and removes these cgroups. For the guardian after
/// the loss of its agent, and at a start.
void sweep_dead_cgroups();

}  // namespace acc::agent
