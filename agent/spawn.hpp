#pragma once

#include "common/unique_fd.hpp"

#include <sys/resource.h>
#include <sys/types.h>

#include <atomic>
#include <csignal>
#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

/// Starts one process: clone3(CLONE_VM | CLONE_VFORK | CLONE_PIDFD) and our own set-up between
/// clone and exec. Boost.Process v2 of 1.81 leaks descriptors and costs ten times as much
/// (docs/decisions/0004-spawn.md).
namespace acc::agent {

/// argv or envp as execve wants it. Owns the text.
class CStringArray {
 public:
  CStringArray() = default;
  explicit CStringArray(std::vector<std::string> strings);
  [[nodiscard]] char* const* get() const { return pointers_.data(); }
  [[nodiscard]] const std::vector<std::string>& strings() const { return strings_; }

 private:
  std::vector<std::string> strings_;
  std::vector<char*> pointers_{nullptr};
};

struct SpawnRequest {
  /// Absolute or relative to the working directory: PATH was searched before.
  const char* path = nullptr;
  char* const* argv = nullptr;
  char* const* envp = nullptr;
  int stdin_fd = -1;  ///< -1: inherit ours
  int stdout_fd = -1;
  int stderr_fd = -1;
  int pmi_fd = -1;       ///< >= 0: the child's descriptor 3, its connection for PMI
  int terminal_fd = -1;  ///< >= 0: make the child's group the foreground group of this terminal
  int cgroup_fd = -1;    ///< >= 0: an open folder of a cgroup v2, which the child is born into
};

/// SpawnFailure::step, with ETIME, when the lease was over before exec: the program never ran.
inline constexpr char kLeaseStep[] = "lease";

struct Spawned {
  pid_t pid = 0;
  UniqueFd pidfd;
};

struct SpawnFailure {
  int errnum = 0;
  const char* step = "";  ///< "clone", "exec", "setpgid" …
};

/// Must live on the thread that lives as long as the agent: PR_SET_PDEATHSIG follows the thread
/// that cloned.
class Spawner {
 public:
  Spawner();
  ~Spawner();
  Spawner(const Spawner&) = delete;
  Spawner& operator=(const Spawner&) = delete;

  /// The child: own process group, SIGKILL when this thread ends, no blocked and no ignored signals
  /// (but SIGHUP under nohup), no descriptor above 2 (but pmi_fd),
  /// the caller's RLIMIT_NOFILE. Returns after
  /// exec succeeded or failed.
  std::variant<Spawned, SpawnFailure> operator()(const SpawnRequest& request);

  /// Soft limit of descriptors that children get back after we raised ours.
  void set_child_nofile(rlimit limit) { child_nofile_ = limit; }

  /// As the last thing before exec the child looks whether this moment (steady_clock, nanoseconds;
  /// 0: no lease) has passed, and ends if so: we may have been stopped since we looked ourselves.
  /// `ends_ns` outlives the spawner; null: no job with leases.
  void heed_lease(const std::atomic<std::int64_t>* ends_ns) { lease_ends_ns_ = ends_ns; }

 private:
  std::vector<int> ignored_signals_;
  std::optional<rlimit> child_nofile_;
  const std::atomic<std::int64_t>* lease_ends_ns_ = nullptr;
  void* stack_ = nullptr;
};

}  // namespace acc::agent
