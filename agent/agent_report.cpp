#include "agent/agent_loop.hpp"
#include "agent/environment.hpp"
#include "agent/report_file.hpp"
#include "agent/seat.hpp"
#include "common/host_name.hpp"

#include <csignal>

// What is known of a failure and of the job, gathered for the report.
namespace acc::agent {

static std::optional<ExitStatus> status_of(const rendezvous::Failure& failure) {
  using Kind = rendezvous::Failure::Kind;
  if (failure.kind == Kind::exited) return Exited{failure.code};
  if (failure.kind == Kind::signaled) return Signaled{failure.code, false};
  return std::nullopt;
}

// What another agent told, which told the coordinator, which told us at the moment `told`.
static FailureElsewhere describe_elsewhere(const rendezvous::Failure& failure, Instant told) {
  using std::chrono::duration_cast;
  using std::chrono::system_clock;
  FailureElsewhere there;
  there.node = failure.node;
  there.host = failure.host;
  there.is_node = failure.kind == rendezvous::Failure::Kind::node_lost;
  auto& report = there.failure;
  report.worker.rank = failure.rank;
  report.worker.local_rank = failure.local_rank;
  report.worker.pid = static_cast<pid_t>(failure.pid);
  report.worker.status = status_of(failure);
  report.worker.ended = told - failure.ago;
  report.worker.started = report.worker.ended - failure.into_round;
  report.cause = failure.cause;
  report.round = failure.round.value();
  report.into_round = failure.into_round;
  const auto ago = std::chrono::steady_clock::now() - report.worker.ended;
  report.when = system_clock::now() - duration_cast<system_clock::duration>(ago);
  if (!failure.error.empty() || !failure.traceback.empty())
    report.error = WorkerError{failure.error, failure.traceback};
  report.tail = failure.last_lines;
  report.log_path = failure.log_path;
  return there;
}

OomFacts AgentLoop::oom_facts(const ExitStatus& status) const {
  const auto* killed = std::get_if<Signaled>(&status);
  if (killed == nullptr || killed->signo != SIGKILL) return {};
  const auto facts = memory_.now();
  return {facts.oom_kills.has_value(), memory_.kills_since_mark(), facts.limit_bytes,
          facts.peak_bytes};
}

FailureReport AgentLoop::describe_failure(const WorkerFailure& failure) {
  FailureReport report;
  report.worker = workers_.records().at(failure.local_rank.value());
  const auto oom = oom_facts(failure.status);
  report.out_of_memory = oom.known && oom.kills > 0;
  report.cause = describe_cause(failure.status, oom);
  report.round = group_.round.value();
  // The worker's own time: of many the last one may run long after the first.
  report.into_round = std::chrono::duration_cast<Millis>(failure.when - report.worker.started);
  const auto ago = std::chrono::steady_clock::now() - failure.when;
  report.when = std::chrono::system_clock::now() -
                std::chrono::duration_cast<std::chrono::system_clock::duration>(ago);
  if (plan_.kind == JobKind::elastic) {
    const auto attempt = attempt_folder(run_folder_.path(), group_.round);
    if (auto error = read_error_file(error_file_path(attempt, failure.local_rank)))
      report.error = std::move(*error);
  }
  report.tail = output_.tail(failure.local_rank);
  report.log_path = output_.log_path(failure.local_rank, Streams::both);
  return report;
}

std::string AgentLoop::words_for(const StartFailure& failure) const {
  if (plan_.script_problem.errnum != 0) return plan_.script_problem.what;
  if (!failure.refusal.empty()) return failure.refusal;
  return describe_start_failure(failure, plan_.command.front(), program_path_);
}

JobReport AgentLoop::make_report(const Finish& finish) const {
  JobReport report;
  report.job_id = job_id_;
  report.host = host_name();
  report.pid = guardian_.pid;
  report.command = plan_.command;
  report.world_size = plan_.world_size.value();
  report.verdict = finish.verdict;
  report.exit_code = finish.exit_code;
  report.stop_signal = group_.stop_signal;
  report.restarts = group_.ledger.restarts;
  report.max_restarts = plan_.restart.max_restarts;
  report.duration = std::chrono::duration_cast<Millis>(std::chrono::steady_clock::now() - began_);
  report.failures = failures_;
  report.failed_rounds = failed_rounds_;
  report.workers = workers_.records();
  report.start_failure = group_.start_failure;
  if (group_.start_failure) {
    report.start_failure_words = words_for(*group_.start_failure);
  }
  if (seat_) add_job_end(report);
  report.left_over = left_over_;
  report.left_over_count = left_over_count_;
  if (finish.verdict == Verdict::unkillable) {
    for (const auto& process : containment_.left_over(LeftOvers::kNamed)) {
      report.unkillable.push_back(name_and_pid(process) + " unkillable, state " + process.state);
    }
  }
  report.losses = output_.losses();
  if (run_folder_.holds_logs()) report.log_folder = run_folder_.path();
  return report;
}

// What the coordinator, or its absence, says of the end.
void AgentLoop::add_job_end(JobReport& report) const {
  if (!seat_->close()) {
    report.reason = seat_->end_reason();
    return;
  }
  const auto& close = *seat_->close();
  report.reason = close.reason;
  report.restarts = close.ledger.restarts;
  if (close.first && close.first->node != seat_->node_name())
    report.elsewhere = describe_elsewhere(*close.first, seat_->closed_at());
}

bool AgentLoop::write_report(const JobReport& report) {
  if (plan_.report_file.empty()) return true;
  const auto written = write_report_file(plan_.report_file, to_json(report));
  note_report_written(guardian_);
  if (written.has_error()) narrator_.error("the report is lost: " + written.error().what);
  return written.has_value();
}

}  // namespace acc::agent
