#include "agent/job_recorder.hpp"

#include "agent/error_lines.hpp"
#include "agent/last_lines.hpp"
#include "agent/left_overs.hpp"
#include "agent/output/file_system_check.hpp"
#include "common/host_name.hpp"
#include "common/plain_text.hpp"

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <system_error>
#include <utility>

namespace acc::agent {

namespace {

// A folder of log files that could not be made is where nothing is.
// One that can't be asked for is taken to be.
std::string if_it_is_there(std::string folder) {
  std::error_code unknown;
  if (!file_system_answers(folder)) return folder;
  return std::filesystem::is_directory(folder, unknown) ? std::move(folder) : std::string{};
}

// A failure on another node, as the coordinator reported it to us at the time `told`.
FailureElsewhere describe_elsewhere(const rendezvous::Failure& failure, Instant told) {
  using std::chrono::duration_cast;
  using std::chrono::system_clock;
  constexpr std::size_t kMostErrorLines = 20;
  FailureElsewhere there;
  there.node = failure.node;
  there.host = failure.host;
  there.is_node = failure.kind == rendezvous::Failure::Kind::node_lost;
  auto& report = there.failure;
  report.worker.rank = failure.rank;
  report.worker.local_rank = failure.local_rank;
  report.worker.pid = static_cast<pid_t>(failure.pid);
  if (!failure.is_hang()) report.worker.status = failure.exit_status();
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
  report.error_lines = last_lines(failure.error_lines, kMostErrorLines);
  report.error_age = failure.error_age;
  report.log_path = failure.log_path;
  report.stacks_path = failure.stacks_path;
  report.no_restart = failure.no_restart;
  report.hint = failure.hint;
  return there;
}

std::vector<std::string> finished_elsewhere(const std::vector<rendezvous::NodeRanks>& finished,
                                            const std::string& own_node) {
  std::vector<std::string> words;
  for (const auto& node : finished) {
    if (node.node == own_node || node.ranks.count == 0) continue;
    words.push_back(describe(node.ranks) + " on " + node.node);
  }
  return words;
}

}  // namespace

JobRecorder::JobRecorder(const JobPlan& plan, const WorkerGroup& workers, const OutputHub& output,
                         const RunFolder& run_folder, const Containment& containment)
    : plan_{plan},
      workers_{workers},
      output_{output},
      run_folder_{run_folder},
      containment_{containment} {}

void JobRecorder::begin_round(Round round) {
  round_ = round;
  attempts_.attempt_begins();
  left_over_pids_.clear();
  memory_.begin_round();
}

OomFacts JobRecorder::oom_facts(const ExitStatus& status, Instant ended) {
  const auto* killed = std::get_if<Signaled>(&status);
  if (killed == nullptr || killed->signo != SIGKILL) return {};
  return memory_.facts(ended);
}

FailureReport JobRecorder::describe(const WorkerFailure& failure) {
  FailureReport report;
  report.worker = workers_.records().at(failure.local_rank.value());
  const auto oom = oom_facts(failure.status, failure.when);
  report.out_of_memory = is_out_of_memory(oom);
  report.cause = failure.hang.empty() ? describe_cause(failure.status, oom, report.worker.cpu_limit)
                                      : failure.hang;
  if (!failure.hang.empty()) {
    report.worker.ended = failure.when;
    report.stacks_path = stacks_path_;
  }
  report.round = round_.value();
  // The worker's own time: of many the last one may run long after the first.
  report.into_round = std::chrono::duration_cast<Millis>(failure.when - report.worker.started);
  const auto ago = std::chrono::steady_clock::now() - failure.when;
  report.when = std::chrono::system_clock::now() -
                std::chrono::duration_cast<std::chrono::system_clock::duration>(ago);
  const bool answers = file_system_answers(run_folder_.path());
  if (!answers) report.unread_error = "its file system gives no answer";
  if (plan_.kind == JobKind::elastic && answers) {
    const auto attempt = attempt_folder(run_folder_.path(), round_);
    auto error = read_error_file(error_file_path(attempt, failure.local_rank));
    if (error) {
      report.error = std::move(*error);
      for (auto* text : {&report.error->message, &report.error->traceback})
        *text = without_sequences(*text);
    } else if (error.error().code != Errc::not_found) {
      report.unread_error = error.error().what;
    }
  }
  take_output(report, output_.tail(failure.local_rank));
  report.log_path = output_.log_path(failure.local_rank, Streams::both);
  if (answers) report.log_path = if_it_is_there(std::move(report.log_path));
  const auto* signaled = std::get_if<Signaled>(&failure.status);
  if (failure.hang.empty() && signaled != nullptr && signaled->signo == SIGABRT) {
    if (const auto words = abort_words(report.tail); !words.empty()) report.cause += ": " + words;
  }
  return report;
}

void JobRecorder::add(FailureReport failure) {
  failures_.push_back(std::move(failure));
  ++failed_rounds_;
  attempts_.attempt_failed();
  // Memory stays bounded over any number of restarts: the first and the latest are kept, only those
  // with their output.
  constexpr std::size_t kKept = 32;
  if (failures_.size() > 1) {  // the last one's alone is handed on, and a file may be large
    auto& first = failures_[failures_.size() - 2];
    if (first.error) first.error->json = {};
  }
  if (failures_.size() > 2) {
    auto& older = failures_[failures_.size() - 2];
    older.tail.clear();
    older.error_lines.clear();
    older.error.reset();
  }
  if (failures_.size() > kKept) failures_.erase(failures_.begin() + 1);
}

std::string JobRecorder::words_for(const StartFailure& failure, const std::string& program) const {
  if (plan_.script_problem.errnum != 0) return plan_.script_problem.what;
  if (!failure.refusal.empty()) return failure.refusal;
  return describe_start_failure(failure, plan_.command.front(), program);
}

void JobRecorder::add_left_over(const LeftOver& process) {
  if (!left_over_pids_.insert(process.pid).second) return;
  if (++left_over_count_ <= LeftOvers::kNamed) left_over_.push_back(name_and_pid(process));
}

// One is booked with the failure, and made only if the job goes on.
static std::uint32_t restarts_used(const RestartLedger& ledger) {
  return std::min(ledger.budget_used, ledger.restarts);
}

// A rank whose peer was lost may end before the peer, which takes a while to leave.
std::vector<std::string> JobRecorder::other_errors(const FailureReport& first) const {
  constexpr std::size_t kMost = 8;
  std::vector<std::string> errors;
  if (!names_missing_peer(first.error ? first.error->message : first.tail)) return errors;
  for (const auto& worker : workers_.records()) {
    if (worker.rank == first.worker.rank || errors.size() == kMost) continue;
    const bool is_failed = worker.status && (worker.asked_to_end || !is_success(*worker.status));
    const auto error =
        is_failed ? own_error(without_sequences(output_.tail(worker.local_rank))) : std::string{};
    if (!error.empty())
      errors.push_back("rank " + std::to_string(worker.rank.value()) + " had written: " + error);
  }
  return errors;
}

JobReport JobRecorder::report(const JobEnd& job) const {
  JobReport report;
  report.job_id = job.job_id;
  report.host = host_name();
  report.node_name = plan_.cluster.node_name;
  report.pid = job.guardian;
  report.command = plan_.command;
  report.world_size = job.world_size.value();
  report.outcome = job.end.outcome;
  report.exit_code = job.end.exit_code;
  report.stop_signal = job.group.stop_signal;
  report.restarts = job.group.ledger.restarts;
  report.restarts_used = restarts_used(job.group.ledger);
  report.max_restarts = job.max_restarts;
  report.duration = std::chrono::duration_cast<Millis>(clock_now() - began_);
  report.failures = failures_;
  report.goodput = job.goodput;
  report.failed_rounds = failed_rounds_;
  report.failed_attempts = attempts_.count();
  report.restarted_after = job.restarted_after;
  report.workers = workers_.records();
  report.start_failure = job.group.start_failure;
  if (report.start_failure)
    report.start_failure_words = words_for(*report.start_failure, job.program);
  report.reason = job.reason;
  const bool is_unfit = report.outcome == Outcome::unfit;  // this node's own matter
  if (is_unfit && report.reason.empty()) report.reason = report.start_failure_words;
  if (job.last_word) {
    const auto& close = job.last_word->close;
    if (!is_unfit) report.reason = close.reason;
    report.restarts = close.ledger.restarts;
    report.restarts_used = restarts_used(close.ledger);
    auto attempts = attempts_;
    if (close.first) attempts.job_failed(close.first->round, round_);
    report.failed_attempts = attempts.count();
    if (close.first && close.first->node != job.last_word->node)
      report.elsewhere = describe_elsewhere(*close.first, job.last_word->told);
    report.finished_elsewhere = finished_elsewhere(close.finished, job.last_word->node);
  }
  if (report.elsewhere) {
    report.elsewhere->failure.other_errors = other_errors(report.elsewhere->failure);
  } else if (decisive_failure(report) != nullptr) {
    report.failures.back().other_errors = other_errors(report.failures.back());
  }
  report.left_over = left_over_;
  report.left_over_count = left_over_count_;
  if (report.outcome == Outcome::unkillable) {
    for (const auto& process : containment_.left_over(LeftOvers::kNamed))
      report.unkillable.push_back(name_and_pid(process) + " unkillable, state " + process.state);
    for (const auto& worker : report.workers) {
      if (is_held_dead(worker))
        report.unkillable.push_back(name_and_pid(look_up(worker.pid)) + " dead, but held by " +
                                    name_tracer(worker.pid));
    }
  }
  report.losses = output_.losses();
  if (run_folder_.holds_logs()) report.log_folder = if_it_is_there(run_folder_.path());
  return report;
}

}  // namespace acc::agent
