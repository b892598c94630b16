#pragma once

#include "common/exit_codes.hpp"
#include "common/exit_status.hpp"
#include "common/restart_policy.hpp"

#include <cerrno>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <variant>

/// What follows a round without processes left: another round or the end of the job (pure). Used by
/// the supervisor of a job on one node and by the coordinator of a job on several.
namespace acc {

/// How a job ended. Used in the report, and sent between nodes as its number.
enum class Outcome : std::uint8_t {
  succeeded,
  failed,         ///< a worker or a node failed and no restart was left
  never_retry,    ///< by --no_restart_codes, or the worker reported that a restart won't help
  no_progress,    ///< --max_no_progress
  cannot_start,   ///< a program can't be executed, or resources ran out
  stopped,        ///< by a signal
  preempted,      ///< by a signal of --preempt_signals
  unkillable,     ///< a process survived SIGKILL
  nodes_missing,  ///< too few nodes joined, or the coordinator is lost
  guardian_lost,  ///< the process that the user started is gone; never sent
  unfit,          ///< health checks found this node unfit; never sent
};
[[nodiscard]] std::string_view to_string(Outcome outcome);

// ---- the result of a round ----
/// Every worker exited with 0.
struct RoundSucceeded {};
/// The stop request ended it while every worker was healthy.
struct RoundInterrupted {};
/// A worker could not be started, and further attempts won't help.
struct RoundUnstartable {
  int errnum = 0;
};
using RoundResult = std::variant<RoundSucceeded, RoundInterrupted, RoundUnstartable, FailedRound>;

/// The signal that asked the job to end.
struct StopRequest {
  int signo = 0;  ///< 0: no request
  bool is_preemption = false;
};
/// `signo` 0: no request.
[[nodiscard]] StopRequest stop_request(int signo, std::span<const int> preempt_signals);

// ---- what follows ----
struct Restart {
  Millis delay{0};
};
struct End {
  Outcome outcome = Outcome::succeeded;
  int exit_code = 0;
  friend bool operator==(const End&, const End&) = default;
};
using RoundEnd = std::variant<Restart, End>;

/// Records the round in the ledger and decides. In order of precedence: a failure without a restart
/// decides the exit code (P6), then a stop request, then the restart.
[[nodiscard]] RoundEnd what_follows(const RestartPolicy& policy, RestartLedger& ledger,
                                    const RoundResult& round, const StopRequest& stop);
/// preempted with 75, or stopped with 128 + the signal.
[[nodiscard]] End end_by_signal(const StopRequest& stop);

/// SIGTERM, SIGINT, SIGHUP, SIGQUIT and those of --preempt_signals; other signals only reach the
/// workers.
[[nodiscard]] bool ends_job(int signo, std::span<const int> preempt_signals);
/// True for a lack that may pass: memory, descriptors, processes; or a program that is being
/// written (ETXTBSY).
[[nodiscard]] bool is_transient(int errnum);
/// What StartFailure has in place of an errno where health checks found the node unfit: no exec
/// and no fork fails with it.
inline constexpr int kUnfitNode = EHOSTDOWN;
/// 127: the program doesn't exist; 71: no resources; 1: its port is taken; 126: it can't be
/// executed.
[[nodiscard]] ExitCode exit_code_for_start(int errnum);
/// "restart 2 of 3"
[[nodiscard]] std::string restart_words(const RestartLedger& ledger, std::uint32_t max_restarts);

}  // namespace acc
