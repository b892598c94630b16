#pragma once

#include "common/duration.hpp"

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <string>

/// Memory that agent and guardian share, and the agent's half of the protocol over it.
namespace acc::agent {

/// A page of shared memory: what the guardian must know also after the agent's death.
struct GuardianBoard {
  char temporary_folder[512];   ///< to be removed if the agent dies before it does; empty: none
  std::atomic<bool> finishing;  ///< the workers are gone, the last output is being written
  /// Process group of the worker that has the terminal, whose Ctrl-C we would not see; 0: none.
  std::atomic<pid_t> terminal_group;
  /// Ctrl-C was pressed in the terminal that a worker has or had last (interrupt_watch.hpp).
  std::atomic<bool> worker_was_interrupted;
  /// Others of the guardian's group use the terminal: no worker gets it any more.
  std::atomic<bool> terminal_is_shared;
  std::atomic<bool> agent_is_gone;  ///< reaped: its pid may be another's

  /// Of a job on several hosts: when the agent has died, its children get so long to stop the job
  /// there before they are killed.
  std::atomic<std::int64_t> orphan_patience_ms;
  std::atomic<bool> is_on_hosts;  ///< the agent has no workers: its job runs on several hosts

  /// This machine is one of several whose lines go to one terminal, and not the first: its lines
  /// name it.
  std::atomic<bool> is_reported_elsewhere;

  // ---- the report (report_file.hpp) ----
  char report_file[4096];               ///< --report; empty: none is wanted
  char refusal[512];                    ///< why nothing was started; empty: not known
  std::atomic<bool> report_is_written;  ///< by the agent, or it could not be

  /// Workers were ended by a signal to the job, here or on another node: its exit code is that of a
  /// stop and no failure.
  std::atomic<bool> was_stopped;

  // ---- jobs on several nodes ----
  /// CLOCK_BOOTTIME in nanoseconds: afterwards no worker of this node may live. 0: no lease yet.
  std::atomic<std::int64_t> lease_ends_ns;
  /// Clocks::ahead() when it was confirmed; written before lease_ends_ns.
  std::atomic<std::int64_t> lease_ahead_ns;
  std::atomic<std::int64_t> lease_taken_ns;  ///< the agent knows of the end of this one
  std::atomic<bool> lease_in_use;            ///< there are workers, or they are about to be started
  std::atomic<bool> lease_is_new;  ///< … but none was started, and the timer may not know of it
  std::atomic<std::int64_t> lease_length_ms;  ///< for messages
  /// It ran out. Set before the first worker is killed, reset by take_lease_end.
  std::atomic<bool> lease_fired;
  std::atomic<bool> lease_killing;  ///< the guardian is just looking for processes to kill
  std::atomic<std::int32_t> lease_timer_pid;  ///< it is armed (lease_timer.hpp); 0: there is none
  std::atomic<std::int64_t> lease_timer_ends_ns;  ///< … for this end of the lease
  std::atomic<std::int32_t> lease_timer_failed;   ///< errno: this machine can't have one
  std::atomic<bool> has_priority;                 ///< the guardian has the highest one
  std::atomic<bool> has_cgroup;                   ///< `cgroup` is valid
  char cgroup[512];                               ///< folder of the job's cgroup
};
static_assert(std::atomic<std::int64_t>::is_always_lock_free);  // a lock is no use across processes

struct GuardianLink {
  pid_t pid = 0;  ///< of the guardian; the agent ends its workers when that process is gone
  GuardianBoard* board = nullptr;  ///< shared memory; null in tests without a guardian
  int wake_fd = -1;                ///< an eventfd that the guardian listens to
  int pipe_fd = -1;                ///< for lease_timer.hpp; -1: none
};

/// From now on the agent outlives the guardian, to end what it will have started: the guardian's death
/// sends it SIGTERM, no longer SIGKILL. False: the guardian is gone already.
[[nodiscard]] bool outlive(const GuardianLink& guardian);

/// The agent's side of the lease: this node may have workers until `ends`, by boot_now(). To be
/// called with each renewal, and before workers are started; what is started afterwards is safe
/// from the end of an older lease. Waits some milliseconds if the guardian is just killing, or
/// until the lease timer is armed.
/// @param length  for the user: so long there was no contact when it ends
void hold_lease(const GuardianLink& guardian, Instant ends, Millis length);
/// The workers are gone: nothing has to die when the lease ends.
void release_lease(const GuardianLink& guardian);
/// The agent ends and starts no more workers: a lease that was released has no end any more, after
/// which the guardian would kill the agent's children. What is left of them it ends after the
/// agent.
void drop_lease(const GuardianLink& guardian);
/// Whether a lease has run out since the last call. To be asked when a worker has ended, before its
/// end is taken for a failure, and between hold_lease and the start of a round.
[[nodiscard]] bool take_lease_end(const GuardianLink& guardian);
/// Which process group has the terminal from now on; 0: the guardian's again.
void note_terminal(const GuardianLink& guardian, pid_t group);
/// Where workers are born from now on; empty: nowhere special. Before they are started.
void note_cgroup(const GuardianLink& guardian, const std::string& folder);

/// How long children that the agent leaves behind by its death get to end by themselves.
void note_orphan_patience(const GuardianLink& guardian, Millis patience);

/// The agent runs a job on several hosts: it can't be suspended, and the third Ctrl-C ends it soon.
void note_hosts(const GuardianLink& guardian);

/// The guardian's lines name this machine (GuardianBoard::is_reported_elsewhere).
void note_reported_elsewhere(const GuardianLink& guardian);

/// Where the report of this job goes, as soon as that is known; empty: nowhere. If the agent writes
/// none, the guardian does.
void note_report(const GuardianLink& guardian, const std::string& path);
/// For that report: why nothing was started.
void note_refusal(const GuardianLink& guardian, const std::string& why);
/// The job ended by a signal to it, here or on another node.
void note_stopped(const GuardianLink& guardian);
/// The agent has tried to write it: there is nothing to add.
void note_report_written(const GuardianLink& guardian);

}  // namespace acc::agent
