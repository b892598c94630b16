#pragma once

#include "agent/job_plan.hpp"
#include "common/duration.hpp"
#include "common/exit_status.hpp"
#include "common/ids.hpp"

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
namespace acc::agent {

enum class Phase {
  idle,         ///< nothing started yet, or about to start the next round
  running,      ///< workers live
  stopping,     ///< asked to end (SIGTERM), or all ended and their left-overs were asked
  killing,      ///< SIGKILL sent
  backing_off,  ///< waits before the next round
  finished,
};

enum class Timer { grace, give_up, backoff };

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
};

struct WorkerFailure {
  LocalRank local_rank;
  ExitStatus status;
  Instant when;
};

/// A worker that could not be started at all.
struct StartFailure {
  LocalRank local_rank;
  int errnum = 0;
  std::string step;  ///< as SpawnFailure::step, or "pipe" …
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
using Event = std::variant<Began, RoundStarted, StartFailed, WorkerExited, Emptied, TimerFired,
                           SignalArrived, GuardianLost>;

// ---- actions ----
struct StartRound {
  Round round;
};
/// To each living worker's group; what asks for an end is followed by SIGCONT.
struct SignalWorkers {
  int signo;
};
/// SIGTERM to processes that left their worker's group.
struct TermStrays {};
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
using Action = std::variant<StartRound, SignalWorkers, TermStrays, KillAll, ArmTimer, DisarmTimer,
                            Finish, TellFailure, TellRestart, TellStartRetry, TellStopping,
                            TellNoRestart, TellHurry, TellKilling>;
using Actions = std::vector<Action>;

struct GroupState {
  // ---- fixed for the job ----
  std::uint32_t size = 1;  ///< workers on this node
  RestartPolicy restart;
  StopPolicy stop;

  // ---- this round ----
  Phase phase = Phase::idle;
  Round round{0};
  std::uint32_t alive = 0;
  Instant round_started{};
  /// Ctrl-C reaches this worker and not us: it has the terminal.
  std::optional<LocalRank> terminal_rank;
  /// The root cause: later deaths are our doing.
  std::optional<WorkerFailure> first_failure;
  std::optional<StartFailure> start_failure;
  bool term_sent = false;
  Millis armed_grace{0};  ///< of the running grace timer, for words

  // ---- the end ----
  int stop_signal = 0;  ///< the first one that asked for it
  /// It came while all was well: the end of the round is its doing.
  bool stopped_by_signal = false;
  std::uint32_t interrupts = 0;  ///< Ctrl-C so far
  bool guardian_lost = false;

  // ---- restarts ----
  std::optional<Instant> start_retry_until;
  bool restart_is_due = false;    ///< decided, but not started yet
  std::uint32_t restarts = 0;     ///< done so far, as workers see it; never goes down
  std::uint32_t budget_used = 0;  ///< goes down again by refill_after
  /// In a row, without a healthy round between: makes the delay grow.
  std::uint32_t quick_failures = 0;
  std::uint32_t without_progress = 0;
};

/// Takes the event in and says what is to be done, in this order. Never fails.
Actions step(GroupState& group, const Event& event);

[[nodiscard]] bool in_classes(const std::vector<CodeRange>& classes, const ExitStatus& status);
/// 0 for the first quick failure, then base, 2 × base … up to the maximum, ± jitter by `roll` in
/// [0, 1).
[[nodiscard]] Millis restart_delay(const RestartPolicy& policy, std::uint32_t quick_failures,
                                   double roll);
[[nodiscard]] bool is_transient(int errnum);  ///< may a start that failed so work a moment later?
[[nodiscard]] std::string_view to_string(Phase phase);
[[nodiscard]] std::string_view to_string(Verdict verdict);

}  // namespace acc::agent
