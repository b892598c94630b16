#pragma once

#include "agent/environment.hpp"
#include "agent/group_state.hpp"
#include "agent/orphan_reaper.hpp"
#include "agent/output/output_hub.hpp"
#include "agent/rank_programs.hpp"
#include "agent/spawn.hpp"
#include "agent/worker_start.hpp"

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/steady_timer.hpp>

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

namespace acc::agent {

class Containment;
class PmiServer;

/// What is known of one worker of a round; kept for the report.
struct WorkerRecord {
  LocalRank local_rank;
  Rank rank;
  pid_t pid = 0;
  std::optional<ExitStatus> status;  ///< none: alive, or never started
  Instant started{};                 ///< it was let go to exec
  Instant ended{};
  std::uint64_t peak_rss_bytes = 0;
  bool asked_to_end = false;     ///< we had signalled it before it ended: not to blame
  bool was_stopped = false;      ///< found in state T when it was asked to end
  bool was_held_dead = false;    ///< it was dead, and couldn't be reaped
  bool is_traced_death = false;  ///< … for a while, as its tracer had to take its status first
  std::optional<SpawnFailure> exec_failure{};       ///< it never ran the program
  std::optional<int> abort_code{};                  ///< of MPI_Abort
  std::optional<std::chrono::seconds> cpu_limit{};  ///< of processor time, if its end is due to it
  [[nodiscard]] bool is_living() const { return pid != 0 && !status; }
};

/// Dead, and its tracer hasn't taken its status.
[[nodiscard]] inline bool is_held_dead(const WorkerRecord& worker) {
  return worker.is_living() && worker.is_traced_death;
}

/// The worker processes of the current round. Each exit is reported once, in the order in which the
/// workers exited.
class WorkerGroup {
 public:
  /// What a signal asks for: nothing that we know of, or that the workers save and end.
  enum class Asks { nothing, an_end };
  struct Hooks {
    std::function<void(const WorkerRecord&)> on_exit;
    /// A worker has ended; how isn't looked at yet. A signal that has arrived comes first.
    std::function<void()> on_end;
    /// All are there and run, or one could not be made and none has run.
    std::function<void(const std::optional<StartFailure>&)> on_started;
    /// Of a worker whose program could not be executed after others had been: its exit follows.
    std::function<void(const StartFailure&)> on_exec_failed;
    /// Of each worker that was made; it is held just before exec.
    std::function<void(pid_t)> on_made;
    /// Of a worker that is dead, and whose status its tracer, a debugger, takes first: its exit
    /// follows when that process has.
    std::function<void(const WorkerRecord&)> on_traced_death;
    /// Of workers that have ended after they were asked to, for a second; what they started in
    /// their groups and was asked with them hasn't: their exits follow when it has.
    std::function<void(const std::vector<Rank>&, const std::vector<pid_t>&)> on_programs_awaited;
  };

  WorkerGroup(boost::asio::io_context& io, Containment& containment, OutputHub& output,
              Hooks hooks);

  /// Makes all workers, held just before exec, then lets them go together: no program runs if one
  /// of them can't be made. In slices: on_started may be called now or later.
  void start(Launch launch);
  /// Gives up a start: on_started will not be called, what was made is the caller's to kill.
  void cancel_start();

  /// To each living worker and the programs that it started in its process group; to the whole
  /// group where helpers aren't spared (spares_helpers). In slices. What asks for an end is
  /// followed by SIGCONT, so that a stopped worker can handle it; a worker that ends by it counts
  /// as living until its programs have ended, too.
  /// @param delivered  when all processes of the workers that lived then got it from elsewhere: for
  ///                   these it is only noted
  void signal(int signo, Asks asks = Asks::nothing, std::optional<Instant> delivered = {});
  /// Kills a worker that asked for it (MPI_Abort); it counts as exited with `code`.
  void abort(Rank rank, int code);
  /// Takes the exit status of orphans that came up to us, for some milliseconds at most.
  /// @return whether none is left, or none but those that are taken soon, beside a dead worker that
  ///         stays unreaped
  bool reap_orphans();
  /// True for the leader of a living worker.
  [[nodiscard]] bool is_living_worker(pid_t pid) const { return living_.contains(pid); }
  [[nodiscard]] const RankPrograms& programs() const { return programs_; }
  [[nodiscard]] const std::vector<WorkerRecord>& records() const { return records_; }
  [[nodiscard]] Spawner& spawner() { return spawner_; }

 private:
  using Descriptor = boost::asio::posix::stream_descriptor;
  struct PendingSignal {
    int signo;
    Asks asks;
    std::optional<Instant> delivered;
    std::vector<pid_t> pids;
    std::unordered_map<pid_t, std::vector<pid_t>> orphans;  ///< by the worker whose group has them
    std::size_t next = 0;
  };

  // a start
  void make_some();
  std::optional<StartFailure> make_one(std::uint32_t index);
  std::optional<StartFailure> prepare_one(std::uint32_t index);
  std::optional<StartFailure> spawn_one(std::uint32_t index);
  std::optional<StartFailure> add_worker(std::size_t index, pid_t pid, UniqueFd pidfd);
  void fork_all();
  void take_forked(LocalRank local, pid_t pid);
  void let_forked_go();
  void start_cold();
  void let_go();
  void release_rest();
  void watch_left();
  void await_left();
  void note_failures();
  void end_start(const std::optional<StartFailure>& failure);
  // afterwards
  void watch(std::size_t index);
  void take_exit(std::size_t index);
  void await_tracer(std::size_t index);
  void signal_some();
  void note_delivered(pid_t pid);
  void signal_one(pid_t pid, const PendingSignal& signal);
  void tell_awaited(const std::vector<pid_t>& workers);
  [[nodiscard]] std::unordered_map<pid_t, std::vector<pid_t>> orphans_in_groups() const;

  boost::asio::io_context& io_;  // all three outlive the group: the agent owns them
  Containment& containment_;
  OutputHub& output_;
  Hooks hooks_;
  Spawner spawner_;
  UniqueFd dev_null_;
  std::unique_ptr<WorkerStart> start_;  ///< until its memory is not used any more
  Descriptor left_;                     ///< HeldChildren::left_fd
  bool is_starting_ = false;
  std::uint64_t epoch_ = 0;          ///< of starts: what was posted for an older one is void
  std::vector<std::size_t> exited_;  ///< during the start: reported when it is over
  std::vector<WorkerRecord> records_;
  std::vector<std::unique_ptr<Descriptor>> pidfds_;
  std::unordered_map<pid_t, std::size_t> living_;
  std::deque<PendingSignal> signals_;
  RankPrograms programs_;
  OrphanReaper reaper_;
  std::vector<std::size_t> traced_;  ///< dead, and their tracers haven't taken their status
  boost::asio::steady_timer trace_timer_;
};

}  // namespace acc::agent
