#include "agent/agent_loop.hpp"
#include "agent/environment.hpp"
#include "agent/small_file.hpp"

#include <unistd.h>

// What is known of a failure and of the job, gathered for the report.
namespace acc::agent {

static std::string host_name() {
  char name[256] = {};
  return ::gethostname(name, sizeof name - 1) == 0 ? name : "localhost";
}

FailureReport AgentLoop::describe_failure(const WorkerFailure& failure) {
  FailureReport report;
  report.worker = workers_.records().at(failure.local_rank.value());
  OomFacts oom;
  const auto* killed = std::get_if<Signaled>(&failure.status);
  if (killed != nullptr && killed->signo == SIGKILL) {
    const auto facts = memory_.now();
    oom = {facts.oom_kills.has_value(), memory_.kills_since_mark(), facts.limit_bytes,
           facts.peak_bytes};
  }
  report.cause = describe_cause(failure.status, oom);
  report.round = group_.round.value();
  report.into_round = std::chrono::duration_cast<Millis>(failure.when - group_.round_started);
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

JobReport AgentLoop::make_report(const Finish& finish) const {
  JobReport report;
  report.job_id = job_id_;
  report.host = host_name();
  report.command = plan_.command;
  report.world_size = plan_.world_size.value();
  report.verdict = finish.verdict;
  report.exit_code = finish.exit_code;
  report.stop_signal = group_.stop_signal;
  report.restarts = group_.restarts;
  report.max_restarts = plan_.restart.max_restarts;
  report.duration = std::chrono::duration_cast<Millis>(std::chrono::steady_clock::now() - began_);
  report.failures = failures_;
  report.failed_rounds = failed_rounds_;
  report.workers = workers_.records();
  report.start_failure = group_.start_failure;
  if (group_.start_failure) {
    report.start_failure_words =
        describe_start_failure(*group_.start_failure, plan_.command.front(), program_path_);
  }
  report.left_over = left_over_;
  report.left_over_count = left_over_count_;
  if (finish.verdict == Verdict::unkillable) {
    for (const auto& process : containment_.left_over()) {
      report.unkillable.push_back(name_and_pid(process) + " unkillable, state " + process.state);
    }
  }
  report.losses = output_.losses();
  if (run_folder_.holds_logs()) report.log_folder = run_folder_.path();
  return report;
}

bool AgentLoop::write_report(const JobReport& report) {
  if (plan_.report_file.empty()) return true;
  const auto written = write_whole_file(plan_.report_file, to_json(report));
  if (written.has_error()) narrator_.error("the report is lost: " + written.error().what);
  return written.has_value();
}

}  // namespace acc::agent
