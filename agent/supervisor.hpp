#pragma once

#include "agent/job_plan.hpp"
#include "common/duration.hpp"
#include "common/exit_status.hpp"
#include "common/ids.hpp"
#include "common/restart_policy.hpp"

#include <optional>
#include <string>
#include <variant>
#include <vector>

/// The life of one node's workers as a pure function of state and event: no clock, process or
/// socket. The agent feeds events in and carries actions out; the time comes with the event.
///
///   idle → running → stopping → killing → finished
///              ↑          └────────┴→ backing_off ┐
///              └──────────────────────────────────┘
///
/// A job on several nodes is `coordinated`: what follows a round is then the coordinator's
/// business, and this node waits for it. Its orders come as events, its news go as actions.
///
///   idle → awaiting → running → stopping → killing
///              ↑ └───→ finished     └─────────┤
///              └──────────────────────────────┘
namespace acc::agent {

enum class Phase {
  idle,         ///< nothing started yet, or about to start the next round
  running,      ///< workers live
  stopping,     ///< asked to end (SIGTERM), or all ended and their left-overs were asked
  killing,      ///< SIGKILL sent
  backing_off,  ///< waits before the next round
  awaiting,     ///< coordinated: no worker here, waits for the coordinator's next order
  finished,
};

enum class Timer {
  grace,
  give_up,
  backoff,
  farewell,   ///< coordinated: asked to end, and the coordinator hasn't closed the job
  left_over,  ///< all workers have exited, and what they left behind may still exit by itself
};
inline constexpr std::size_t kTimers = 5;

/// Why the job is over.
enum class Verdict {
  succeeded,
  failed,         ///< a worker failed and no restart was left
  never_retry,    ///< a worker's code is in --no_restart_codes
  no_progress,    ///< --max_no_progress
  cannot_start,   ///< a program can't be executed, or resources ran out
  stopped,        ///< by a signal
  preempted,      ///< by a signal of --preempt_signals
  unkillable,     ///< a process survived SIGKILL
  guardian_lost,  ///< the process that the user started is gone
  nodes_missing,  ///< too few nodes came, or the coordinator is gone
};

struct WorkerFailure {
  LocalRank local_rank;
  ExitStatus status;
  Instant when;
  bool is_final = false;  ///< the worker said that a restart won't help
};

/// A worker that could not be started at all.
struct StartFailure {
  LocalRank local_rank;
  int errnum = 0;
  std::string step;  ///< as SpawnFailure::step (also kLeaseStep), or "pipe" …
  /// In place of the usual words, where it was known before anything was tried: then another try
  /// is no use.
  std::string refusal{};
};

// ---- events ----
struct Began {
  Instant now;
};
struct RoundStarted {
  Instant now;
};
struct StartFailed {
  StartFailure failure;
  Instant now;
};
struct WorkerExited {
  LocalRank local_rank;
  ExitStatus status;
  Instant now;
  bool is_final = false;  ///< it said that a restart won't help
};
/// No process of the round is left. `progress` tells whether --progress_file changed; `roll` is
/// uniform in [0, 1).
struct Emptied {
  Instant now;
  bool progress = false;
  double roll = 0.5;
};
struct TimerFired {
  Timer timer;
  Instant now;
};
struct SignalArrived {
  int signo;
  Instant now;
};
struct GuardianLost {
  Instant now;
};
// ---- events of coordinated jobs; in others they mean nothing ----
/// The coordinator's Start. An order that is not newer than the last one is ignored, as is one
/// while this node hasn't reported the end of the last round.
struct RoundOrdered {
  Round round;
  RestartLedger ledger;
  Instant now;
};
struct StopOrdered {
  int signo = 0;  ///< to send first; 0: SIGTERM; SIGKILL: no grace
  Millis grace{0};
  bool for_good = false;  ///< no round will follow
  Instant now;
};
/// A signal that ends nothing, for the workers of all nodes.
struct SignalOrdered {
  int signo;
};
/// The lease has run out: another node may start the next round from now on, and the guardian
/// kills. To be fed before the exits of those workers, or they count as failures.
struct LeaseOver {
  Instant now;
};
struct JobClosed {
  Verdict verdict;
  int exit_code;
  Instant now;
};
using Event =
    std::variant<Began, RoundStarted, StartFailed, WorkerExited, Emptied, TimerFired, SignalArrived,
                 GuardianLost, RoundOrdered, StopOrdered, SignalOrdered, LeaseOver, JobClosed>;

// ---- actions ----
struct StartRound {
  Round round;
};
/// To each living worker's group; what asks for an end is followed by SIGCONT.
struct SignalWorkers {
  int signo;
};
/// SIGTERM to processes that left their worker's group, or outlived it.
struct TermStrays {};
/// To all processes of the round; a start that is under way is given up.
struct KillAll {};
struct ArmTimer {
  Timer timer;
  Millis after;
};
struct DisarmTimer {
  Timer timer;
};
struct Finish {
  Verdict verdict;
  int exit_code;
};
// What the user is told; the agent finds the words.
struct TellFailure {
  WorkerFailure failure;
};
struct TellRestart {
  std::uint32_t restart;
  std::uint32_t of;
  Millis delay;
};
struct TellStartRetry {
  StartFailure failure;
  Millis window;  ///< so long it is tried again
};
struct TellStopping {
  int signo;
  Millis grace;
  bool preempted;
};
/// A signal came while the round was ending anyway: no restart will follow.
struct TellNoRestart {
  int signo;
};
struct TellHurry {
  int signo;
  Millis grace;
};
struct TellKilling {
  Millis after;
};
// What the coordinator is told, only in coordinated jobs. Each StartRound is answered by one of
// ReportCompleted and ReportStopped, or by Finish.
struct ReportFailed {
  WorkerFailure failure;
};
struct ReportStartFailed {
  StartFailure failure;
};
/// All workers ended with 0, and no process of the round is left.
struct ReportCompleted {};
/// No process of the round is left; also the answer to an order to stop when none was there.
struct ReportStopped {
  bool progress = false;
};
struct ReportUnkillable {};
/// A signal came to this node and is meant for the whole job.
struct AskJob {
  int signo;
  std::uint32_t interrupts;  ///< Ctrl-C so far
};
using Action = std::variant<StartRound, SignalWorkers, TermStrays, KillAll, ArmTimer, DisarmTimer,
                            Finish, TellFailure, TellRestart, TellStartRetry, TellStopping,
                            TellNoRestart, TellHurry, TellKilling, ReportFailed, ReportStartFailed,
                            ReportCompleted, ReportStopped, ReportUnkillable, AskJob>;
using Actions = std::vector<Action>;

struct GroupState {
  // ---- fixed for the job ----
  std::uint32_t size = 1;  ///< workers on this node
  RestartPolicy restart;
  StopPolicy stop;
  bool coordinated = false;  ///< on several nodes; `restart` is then the coordinator's business

  // ---- this round ----
  Phase phase = Phase::idle;
  Round round{0};
  /// StartRound was said, and neither RoundStarted nor StartFailed came: no worker has run yet. A
  /// KillAll ends this, then neither of them comes.
  bool starting = false;
  std::uint32_t alive = 0;
  Instant round_started{};
  /// Ctrl-C reaches this worker and not us: it has the terminal.
  std::optional<LocalRank> terminal_rank;
  /// The root cause: later deaths are our doing.
  std::optional<WorkerFailure> first_failure;
  std::optional<StartFailure> start_failure;
  bool term_sent = false;
  /// All workers have exited, and the time for left-overs to exit by themselves is over: they are
  /// asked to end, also those that show up later.
  bool left_overs_due = false;
  Millis armed_grace{0};  ///< of the running grace timer, for words
  Instant grace_ends{};   ///< when that timer fires

  // ---- the end ----
  int stop_signal = 0;  ///< the first one that asked for it
  /// It came while all was well: the end of the round is its doing.
  bool stopped_by_signal = false;
  std::uint32_t interrupts = 0;  ///< Ctrl-C so far
  bool guardian_lost = false;

  // ---- restarts ----
  std::optional<Instant> start_retry_until;
  bool restart_is_due = false;  ///< decided, but not started yet
  RestartLedger ledger;

  // ---- orders (coordinated) ----
  std::optional<Round> ordered_round;  ///< the newest; a round never comes twice
  std::optional<StopOrdered> stop_ordered;
  std::optional<JobClosed> closed;
  bool lease_over = false;  ///< in this round
  bool progress = false;    ///< of the last round, for a repeated answer
};

/// Takes the event in and says what is to be done, in this order. Never fails.
Actions step(GroupState& group, const Event& event);

[[nodiscard]] bool is_transient(int errnum);  ///< does something lack that may be there later?
/// May a start that failed so work a moment later?
[[nodiscard]] bool is_worth_a_retry(const StartFailure& failure);
[[nodiscard]] std::string_view to_string(Phase phase);
[[nodiscard]] std::string_view to_string(Verdict verdict);

}  // namespace acc::agent
