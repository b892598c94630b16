#pragma once

#include "common/unique_fd.hpp"

#include <sys/resource.h>
#include <sys/types.h>

#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

/// Starts processes: clone3(CLONE_VM | CLONE_FILES | CLONE_PIDFD), our own set-up, then a wait just
/// before exec until all of a round are there (docs/decisions/0004-spawn.md, 0017-held-at-exec.md).
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
  const int* ignored_signals = nullptr;  ///< by the program, up to a 0; null: none
  /// A mask as sched_setaffinity takes it; empty: not bound.
  const std::vector<unsigned long>* cpus = nullptr;
};

struct Spawned {
  pid_t pid = 0;
  UniqueFd pidfd;
};

struct SpawnFailure {
  int errnum = 0;
  const char* step = "";  ///< "clone", "exec", "setpgid" …
};

struct FailedChild {
  std::size_t index = 0;
  SpawnFailure failure;
};

struct ChildSlot;
struct Gate;
class Spawner;

/// Children that are all but started: own process group, SIGKILL when this thread ends, no ignored
/// signals but those of the request (and SIGHUP under nohup), no descriptor but those of the
/// request, the caller's RLIMIT_NOFILE. They wait, with signals blocked, until they are let go;
/// then exec follows at once. They share our memory until then.
class HeldChildren {
 public:
  HeldChildren(Spawner& spawner, std::size_t capacity);
  /// Children that were never let go should be dead.
  ~HeldChildren();
  HeldChildren(const HeldChildren&) = delete;
  HeldChildren& operator=(const HeldChildren&) = delete;

  /// Makes one more, which may still be on its way when this returns; its descriptors may be closed
  /// all the same. What `request` points to must stay until all_left().
  std::variant<Spawned, SpawnFailure> add(const SpawnRequest& request);
  /// Waits until all wait. @return the first that could not be set up; its process has ended.
  [[nodiscard]] std::optional<FailedChild> settle();
  /// Lets the first one go, and waits until it has called exec or failed, at most so long: what is
  /// wrong with the program shows here, before a second worker runs it.
  std::optional<SpawnFailure> try_first(std::chrono::nanoseconds patience);
  /// Lets all go, and wakes some of them. To be called until it returns true.
  bool release_some();
  /// Why this one never ran the program; nothing: it did, or nothing is known yet.
  [[nodiscard]] std::optional<SpawnFailure> failure_of(std::size_t index) const;
  /// No child uses our memory any more.
  [[nodiscard]] bool all_left() const;
  /// After the last add, which it must follow: until then descriptors of the last children are
  /// kept open. At its end of file all have left; -1 if there is none.
  int left_fd();

 private:
  [[nodiscard]] ChildSlot& slot(std::size_t index) const;
  void await_made(std::size_t index) const;
  long clone_child(ChildSlot& child, int cgroup_fd, int& pidfd) const;

  Spawner& spawner_;
  std::size_t capacity_;
  std::size_t count_ = 0;
  void* memory_ = nullptr;
  Gate* gates_ = nullptr;  ///< of the first, and of all others
  UniqueFd alive_;         ///< a pipe: each child holds the write end until exec
  UniqueFd left_;
};

/// Must live on the thread that lives as long as the agent: PR_SET_PDEATHSIG follows the thread
/// that cloned.
class Spawner {
 public:
  Spawner();
  Spawner(const Spawner&) = delete;
  Spawner& operator=(const Spawner&) = delete;

  /// Starts one, as HeldChildren. Returns after exec succeeded or failed.
  std::variant<Spawned, SpawnFailure> operator()(const SpawnRequest& request);

  /// Soft limit of descriptors that children get back after we raised ours.
  void set_child_nofile(rlimit limit) { child_nofile_ = limit; }

  /// As the last thing before exec the child looks whether this moment (CLOCK_BOOTTIME,
  /// nanoseconds; 0: no lease) has passed, and ends if so: we may have been stopped since we looked
  /// ourselves. `ends_ns` outlives the spawner; null: no job with leases.
  void heed_lease(const std::atomic<std::int64_t>* ends_ns) { lease_ends_ns_ = ends_ns; }
  /// That moment; 0: no lease.
  [[nodiscard]] std::int64_t lease_ends_ns() const {
    return lease_ends_ns_ != nullptr ? lease_ends_ns_->load() : 0;
  }

 private:
  friend class HeldChildren;
  /// stdin, stdout, stderr, PMI's, the terminal, HeldChildren::alive_.
  static constexpr std::size_t kHandedOver = 6;
  using Counter = std::array<UniqueFd, kHandedOver>;

  void open_counters(std::size_t count);
  [[nodiscard]] bool shares_descriptors() const { return first_foreign_fd_ >= 0; }
  /// The counter must not be in use by another child any more.
  void fill(ChildSlot& slot, const SpawnRequest& request, int alive_fd, std::size_t counter);
  void empty_counters();

  std::vector<int> ignored_signals_;  ///< ends with a 0
  std::optional<rlimit> child_nofile_;
  const std::atomic<std::int64_t>* lease_ends_ns_ = nullptr;
  /// Low descriptors through which a child gets its own, so that it needn't copy our whole table;
  /// several, so that the next one can be made while it does.
  std::vector<Counter> counters_;
  UniqueFd dev_null_;
  int first_foreign_fd_ = -1;  ///< -1: the kernel or a container refuses that
};

}  // namespace acc::agent
