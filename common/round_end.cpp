#include "common/round_end.hpp"

#include "common/enum_names.hpp"
#include "common/passed_signals.hpp"

#include <algorithm>
#include <cerrno>
#include <csignal>

namespace acc {

namespace {

constexpr EnumNames<Outcome, Outcome::unfit> kOutcomes{
    {"succeeded", "failed", "never_retry", "no_progress", "cannot_start", "stopped", "preempted",
     "unkillable", "nodes_missing", "guardian_lost", "unfit"}};

// A lost node has no exit status.
int code_of(const FailedRound& round) {
  return round.status ? shell_code(*round.status) : to_int(ExitCode::nodes_missing);
}

struct Decide {
  const RestartPolicy& policy;
  RestartLedger& ledger;
  const StopRequest& stop;

  RoundEnd operator()(const RoundSucceeded&) const {
    return End{Outcome::succeeded, to_int(ExitCode::success)};
  }
  RoundEnd operator()(const RoundInterrupted&) const { return end_by_signal(stop); }
  RoundEnd operator()(const RoundUnstartable& round) const {
    // A transient failure is no final cause: the stop request is the reason that it isn't retried.
    if (stop.signo != 0 && is_transient(round.errnum)) return end_by_signal(stop);
    if (round.errnum == kUnfitNode) return End{Outcome::unfit, to_int(ExitCode::unfit)};
    return End{Outcome::cannot_start, to_int(exit_code_for_start(round.errnum))};
  }
  RoundEnd operator()(const FailedRound& round) const {
    const auto decision = decide_restart(policy, ledger, round);
    switch (decision.verdict) {
      case RestartVerdict::never_retry:
        return End{Outcome::never_retry, code_of(round)};
      case RestartVerdict::no_progress:
        return End{Outcome::no_progress, to_int(ExitCode::hopeless)};
      case RestartVerdict::spent:
        return End{Outcome::failed, code_of(round)};
      case RestartVerdict::restart:
        break;
    }
    if (stop.signo != 0) return end_by_signal(stop);
    return Restart{decision.delay};
  }
};

bool is_preemption(int signo, std::span<const int> preempt_signals) {
  return std::ranges::count(preempt_signals, signo) != 0;
}

}  // namespace

std::string_view to_string(Outcome outcome) { return kOutcomes[outcome]; }

StopRequest stop_request(int signo, std::span<const int> preempt_signals) {
  return {signo, is_preemption(signo, preempt_signals)};
}

RoundEnd what_follows(const RestartPolicy& policy, RestartLedger& ledger, const RoundResult& round,
                      const StopRequest& stop) {
  return std::visit(Decide{policy, ledger, stop}, round);
}

End end_by_signal(const StopRequest& stop) {
  if (stop.is_preemption) return {Outcome::preempted, to_int(ExitCode::requeue)};
  return {Outcome::stopped, 128 + stop.signo};
}

bool ends_job(int signo, std::span<const int> preempt_signals) {
  return ends_any_job(signo) || is_preemption(signo, preempt_signals);
}

bool is_transient(int errnum) {
  return errnum == EAGAIN || errnum == ENOMEM || errnum == EMFILE || errnum == ENFILE ||
         errnum == ETXTBSY;
}

ExitCode exit_code_for_start(int errnum) {
  if (is_transient(errnum)) return ExitCode::resources;
  if (errnum == EADDRINUSE) return ExitCode::failure;
  const bool missing = errnum == ENOENT || errnum == ENOTDIR;
  return missing ? ExitCode::command_not_found : ExitCode::cannot_execute;
}

std::string restart_words(const RestartLedger& ledger, std::uint32_t max_restarts) {
  return "restart " + std::to_string(ledger.budget_used) + " of " + std::to_string(max_restarts);
}

}  // namespace acc
