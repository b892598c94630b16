#pragma once

#include "agent/daemon/jobs.hpp"

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

/// The life of a job in the daemon (pure): state and event in, actions out. The service carries
/// the actions out in their order, one after the other.
namespace acc::agent::daemon {

using Delay = std::chrono::milliseconds;

enum class Phase {
  queued,    ///< for slots
  delayed,   ///< before a restart; it keeps its slots
  starting,  ///< the guardian is made, and waits at its gate
  running,
  stopping,
  ended,
};

/// What the daemon must know of a job to decide; all of it is recorded.
struct JobLife {
  Phase phase = Phase::queued;
  JobState end = JobState::succeeded;  ///< of an ended one
  bool stop_asked = false;             ///< no restart by policy any more
  bool again = false;                  ///< stopping only in order to start anew
  bool asks_anew = false;              ///< then not in the slots and GPUs that it has
  std::optional<std::uint32_t> grace_s;
  std::optional<int> exit_code;
  std::string reason;
  std::uint32_t starts = 0;
  std::uint32_t starts_again = 0;    ///< by the policy, since the submission or a restart by hand
  std::uint32_t quick_failures = 0;  ///< in a row
  std::uint32_t postponed = 0;       ///< starts in a row that were
  RestartRule rule = RestartRule::no;
  std::uint32_t max_starts_again = 0;  ///< 0: without limit
  friend bool operator==(const JobLife&, const JobLife&) = default;
};

/// As the API shows it.
[[nodiscard]] JobState state_of(const JobLife& life);
[[nodiscard]] bool has_slots(const JobLife& life);

// ---- events ----
struct Submitted {};
struct SlotsGiven {};
struct GuardianStarted {};
/// It never ran: a working directory that is closed, no such program.
struct StartFailed {
  int exit_code = 0;
  std::string reason;
  double jitter = 0.5;  ///< uniform in [0, 1), as in the next three
};
/// It can't start just now, for no reason of its own: the state folder's disk is full, or the user
/// data base doesn't know its user. It is tried again, whatever its restart rule.
struct StartPostponed {
  std::string reason;
  double jitter = 0.5;
};
struct GuardianEnded {
  int exit_code = 0;
  Delay lived{0};
  double jitter = 0.5;
  bool has_begun = true;  ///< false: it ended before its first act, and may have said nothing
  bool was_stopped = false;  ///< by a signal to the job: to its guardian, or on another node
  std::string not_started = {};  ///< why acc-launch started no worker; empty: it did, or not known
};
struct GuardianLost {
  std::string how;  ///< "killed by SIGKILL (9)"
  Delay lived{0};
  double jitter = 0.5;
};
struct StopAsked {
  std::optional<std::uint32_t> grace_s;
};
/// A signal was passed on that ends the job as at a terminal: it ends as stopped, and no restart
/// follows.
struct EndSignaled {};
struct RestartAsked {};
/// Its file in jobs.d changed: a new guardian, also where the workers could have been restarted.
struct Reconfigured {
  bool has_other_share = false;  ///< of the node: its slots and GPUs are asked for anew
};
struct DelayOver {};
struct KillDue {};
/// What a restarted daemon found of a job that had a guardian (docs/decisions/0034-daemon.md).
struct Found {
  bool lives = false;
  std::optional<int> exit_code{};
  bool has_started = false;
  bool same_boot = true;
  double jitter = 0.5;
  bool was_stopped = false;  ///< as in GuardianEnded, and the next
  std::string not_started{};
  std::int64_t ended_ms = 0;  ///< of the guardian, by the wall clock; 0: not known
};
using JobChange =
    std::variant<Submitted, SlotsGiven, GuardianStarted, StartFailed, StartPostponed, GuardianEnded,
                 GuardianLost, StopAsked, EndSignaled, RestartAsked, Reconfigured, DelayOver,
                 KillDue, Found>;

// ---- actions ----
struct AskForSlots {};
struct FreeSlots {};
/// Forks the guardian, records it and opens its gate; GuardianStarted or StartFailed follows.
struct StartGuardian {};
struct StopGuardian {
  std::optional<std::uint32_t> grace_s;
};
struct KillGuardian {};
struct ArmDelay {
  Delay delay{0};
};
struct ArmKill {
  Delay delay{0};
};
struct DisarmTimers {};
struct Record {};
struct Report {
  std::string kind;
  std::string text;
};
using JobAction = std::variant<AskForSlots, FreeSlots, StartGuardian, StopGuardian, KillGuardian,
                               ArmDelay, ArmKill, DisarmTimers, Record, Report>;
using JobActions = std::vector<JobAction>;

/// Why a job waits for its restart, and how long it still does.
/// @param then  what follows
[[nodiscard]] std::string with_delay(const std::string& text, Delay delay,
                                     const std::string& then = "restarts");

/// Total: an event that means nothing in this state changes nothing.
[[nodiscard]] JobActions step(JobLife& life, const JobChange& change);

/// After so long a start counts as healthy, and the next restart comes at once.
inline constexpr Delay kHealthyAfter{60'000};
inline constexpr Delay kLongestDelay{60'000};
/// Of a job that can't start, as its script isn't there: no try is at once, as nothing was running
/// that users miss, and what is wrong is mostly for a person to put right.
inline constexpr Delay kLongestDelayNotStarted{300'000};
/// A guardian that was given a grace and still runs so long after it is killed.
inline constexpr Delay kKillAfterGrace{15'000};

}  // namespace acc::agent::daemon
