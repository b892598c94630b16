#pragma once

#include "agent/job_plan.hpp"
#include "common/duration.hpp"
#include "common/exit_status.hpp"
#include "common/ids.hpp"
#include "common/restart_policy.hpp"
#include "common/round_end.hpp"

#include <optional>
#include <string>
#include <variant>
#include <vector>

/// What the supervisor decides about: the state of one node's workers, the events that change it
/// and the actions that follow.
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
  close_timeout,  ///< coordinated: asked to end, and the coordinator hasn't closed the job
  left_over,      ///< all workers have exited, and what they left behind may still exit by itself
  startup,        ///< coordinated: an order to stop waits for the workers' first moment
  interrupt,      ///< a failed worker had the terminal: was it Ctrl-C?
  culprit,        ///< a worker failed as another rank had: that one's exit may still follow
};
inline constexpr auto kTimers = static_cast<std::size_t>(Timer::culprit) + 1;

struct WorkerFailure {
  LocalRank local_rank;
  ExitStatus status;
  Instant when;
  bool is_final = false;  ///< the worker reported that a restart won't help
  /// It lives and makes no progress: the cause in words. The status is then that of its failure.
  std::string hang{};
};

/// A worker that could not be started at all.
struct StartFailure {
  LocalRank local_rank;
  int errnum = 0;
  std::string step;  ///< as SpawnFailure::step (also kLeaseStep), or "pipe" …
  /// Message to the user, where the failure was known before anything was tried: then a retry is of
  /// no use.
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
  bool is_final = false;  ///< it reported that a restart won't help
  /// It reported that another rank had ended or aborted, on which it fails.
  bool peer_failed = false;
};
/// Ctrl-C in the terminal that a worker has. The SIGINT went to that worker and not to us; this may
/// be reported after its exit.
struct TerminalInterrupted {
  Instant now;
};
/// A worker makes no progress, and the evidence was collected: a failure, as if it had exited.
struct HangFound {
  LocalRank local_rank;
  std::string cause;  ///< "hung: no heartbeat for 10 s after step 41"
  Instant now;
};
/// No process of the round is left. `progress` tells whether --progress_file changed
/// or a checkpoint was reported;
/// `jitter_sample` is uniform in [0, 1).
struct Emptied {
  Instant now;
  bool progress = false;
  double jitter_sample = 0.5;
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
/// A stop over the control socket: as SIGTERM. The grace of the first stop counts as the plan's
/// own; a later one shortens what is left and never lengthens it.
struct StopAsked {
  std::optional<Millis> grace;  ///< nothing: the plan's
  Instant now;
};
/// A restart over the control socket: one more round of all workers, which uses up none of
/// --max_restarts. Ignored where why_no_restart names a reason.
struct RestartAsked {
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
  bool is_asked_elsewhere = false;  ///< another node received the signal
  Millis failed_ago{0};             ///< the failure of which it follows, before the order came
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
/// The coordinator closed the job, or this node ends without it.
struct JobClosed {
  End end;
  Instant now;
};
/// No coordinator was found, or it refuses this node.
struct GaveUp {
  End end;
  bool is_refused = false;
  Instant now;
};
/// Whether this node has a coordinator to talk to.
struct LinkChanged {
  bool is_connected = false;
};
using Event = std::variant<Began, RoundStarted, StartFailed, WorkerExited, TerminalInterrupted,
                           HangFound, Emptied, TimerFired, SignalArrived, GuardianLost, StopAsked,
                           RestartAsked, RoundOrdered, StopOrdered, SignalOrdered, LeaseOver,
                           JobClosed, GaveUp, LinkChanged>;

// ---- actions ----
struct StartRound {
  Round round;
};
/// To each living worker's group; what asks for an end is followed by SIGCONT.
struct SignalWorkers {
  int signo;
};
/// SIGTERM to processes that left their worker's process group, or outlived the worker.
struct TerminateEscaped {};
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
  End end;
};
// Messages to the user; the agent phrases them.
struct TellFailure {
  WorkerFailure failure;
};
struct TellRestart {
  RestartLedger ledger;
  std::uint32_t max_restarts;
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
/// A signal arrived while the round was ending anyway: no restart will follow.
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
/// A restart was asked for; the workers have so long to end.
struct TellRestartAsked {
  Millis grace;
};
// Reports to the coordinator, only in coordinated jobs. Each StartRound is answered by one of
// ReportCompleted and ReportStopped, or by Finish.
struct ReportFailed {
  WorkerFailure failure;
};
struct ReportStartFailed {
  StartFailure failure;
};
/// All workers ended with 0, and no process of the round is left.
struct ReportCompleted {
  bool progress = false;
};
/// No process of the round is left; also the answer to an order to stop when none was there.
struct ReportStopped {
  bool progress = false;
};
struct ReportUnkillable {};
/// A signal reached this node and is meant for the whole job.
struct AskJob {
  int signo;
};
/// A restart was asked for on this node, and the coordinator decides.
struct AskRestart {};
using Action =
    std::variant<StartRound, SignalWorkers, TerminateEscaped, KillAll, ArmTimer, DisarmTimer,
                 Finish, TellFailure, TellRestart, TellStartRetry, TellStopping, TellNoRestart,
                 TellHurry, TellKilling, TellRestartAsked, ReportFailed, ReportStartFailed,
                 ReportCompleted, ReportStopped, ReportUnkillable, AskJob, AskRestart>;
using Actions = std::vector<Action>;

/// What the coordinator has ordered.
struct Orders {
  std::optional<Round> round;  ///< the newest; no round is ordered twice
  Instant round_at{};
  std::optional<StopOrdered> stop;
  bool is_stop_held = false;       ///< it waits for Timer::startup
  std::optional<JobClosed> close;  ///< also where this node ends without the coordinator
};

/// The worker that has the terminal: Ctrl-C reaches it and not us.
struct TerminalWorker {
  std::optional<LocalRank> rank;          ///< nothing: no worker has it
  std::optional<Instant> interrupted_at;  ///< its last Ctrl-C in this round
  /// It failed, and a Ctrl-C before that may not be reported yet: Timer::interrupt runs.
  std::optional<WorkerFailure> held_failure;
};

/// Of Timer::grace.
struct RunningGrace {
  Millis armed{0};  ///< for messages
  Instant ends{};   ///< when the timer fires
};

struct GroupState {
  // ---- fixed for the job ----
  std::uint32_t size = 1;  ///< workers on this node
  RestartPolicy restart;
  StopPolicy stop;
  bool coordinated = false;  ///< on several nodes; `restart` is then the coordinator's business
  /// Coordinated: an order to stop for another round waits until the workers are so old. A script
  /// that fails right at its start mostly does so on all nodes: so an interpreter gets to its first
  /// lines, and its own error into the log, before another node's failure ends it.
  Millis startup_grace{0};

  // ---- this round ----
  Phase phase = Phase::idle;
  Round round{0};
  /// StartRound was issued, and neither RoundStarted nor StartFailed has followed: no worker has
  /// run yet. After a KillAll neither of them will.
  bool starting = false;
  std::uint32_t alive = 0;
  Instant round_started{};
  TerminalWorker terminal;
  /// The root cause: we caused the later exits.
  std::optional<WorkerFailure> first_failure;
  /// The first worker here that failed as another rank had. It becomes the root cause if that one's
  /// exit isn't seen, here or on another node, before Timer::culprit fires.
  std::optional<WorkerFailure> held_failure;
  std::optional<StartFailure> start_failure;
  bool term_sent = false;
  /// All workers have exited, and the time for left-overs to exit by themselves is over: they are
  /// asked to end, also those that show up later.
  bool left_overs_due = false;
  RunningGrace grace;

  // ---- the end ----
  int stop_signal = 0;  ///< the first one that asked for it
  /// It arrived while all workers were healthy: it ended the round.
  bool stopped_by_signal = false;
  std::uint32_t interrupts = 0;  ///< Ctrl-C so far
  std::optional<Instant> guardian_lost;

  // ---- restarts ----
  std::optional<Instant> start_retry_until;
  bool restart_is_due = false;  ///< decided, but not started yet
  bool restart_asked = false;   ///< the round ends because another one was asked for
  RestartLedger ledger;

  // ---- orders (coordinated) ----
  Orders orders;
  bool is_connected = false;  ///< to a coordinator
  /// A signal that ends the job arrived while there was no coordinator to report it to.
  bool is_signal_unheard = false;
  bool lease_over = false;  ///< in this round
  bool progress = false;    ///< of the last round, for a repeated answer
};

[[nodiscard]] std::string_view to_string(Phase phase);

}  // namespace acc::agent
