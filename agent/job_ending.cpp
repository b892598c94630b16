#include "agent/job_ending.hpp"

#include "agent/coordinated_job.hpp"
#include "agent/guardian_board.hpp"
#include "agent/job_course.hpp"
#include "agent/job_recorder.hpp"
#include "agent/job_telemetry.hpp"
#include "agent/output/file_system_check.hpp"
#include "agent/output/output_hub.hpp"
#include "agent/report_file.hpp"
#include "agent/round_starter.hpp"
#include "agent/round_terms.hpp"
#include "agent/small_file.hpp"
#include "agent/translate.hpp"
#include "agent/user_messages.hpp"
#include "agent/watch/job_watch.hpp"
#include "common/exit_codes.hpp"
#include "common/worker_env.hpp"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>

namespace acc::agent {

namespace {

constexpr Millis kReportPatience{2'000};
// While a job is being stopped, a destination of output that takes nothing is waited for no longer
// than this …
constexpr Millis kStoppingPatience{2'000};
// … and at its end no longer than this where a destination is merely slow.
constexpr Millis kStoppedFlush{30'000};
constexpr Millis kHurriedFlush{300};
// Behind the workers nothing else is due; a standard output has as long.
constexpr Millis kLastPatience{30'000};
constexpr Millis kForever{std::chrono::hours{24 * 365}};

}  // namespace

FlushLimits limits_of_last_flush(bool is_hurried, bool is_stopped, Millis patience) {
  if (is_hurried) return {kHurriedFlush, kHurriedFlush};
  if (!is_stopped) return {patience, kForever};
  return {std::min(patience, kStoppingPatience), kStoppedFlush};
}

// The node with the coordinator tells it. Where no coordinator has closed the job, a node that had
// it before does, and each that found no coordinator again: the others may all be gone.
bool tells_end(const EndHere& here) {
  if (here.is_closed) return here.tells_job;
  // Without its guardian this node ends, and the job goes on on the others, if they are a majority.
  constexpr std::uint32_t kLeastForSuccessor = 3;
  if (here.is_guardian_lost && here.nodes >= kLeastForSuccessor) return false;
  return here.tells_job || here.has_told_job || here.outcome == Outcome::nodes_missing;
}

// The supervisor always ends with Finish; without it the loop had nothing left to wait for, which
// is a bug.
End JobEnding::end() const {
  return end_.value_or(End{Outcome::failed, to_int(ExitCode::failure)});
}

std::string JobEnding::words_for_others() const { return leave_words(end().outcome, reason_); }

void JobEnding::spare_stopping_workers() {
  const auto& group = parts_.group;
  const bool is_ending = group.phase == Phase::stopping || group.phase == Phase::killing;
  if (is_ending && (group.stop_signal != 0 || (group.orders.stop && group.orders.stop->for_good)))
    parts_.output.shorten_patience(kStoppingPatience);
}

int JobEnding::conclude(const CoordinatedJob* job) {
  auto& output = parts_.output;
  parts_.course.job_over(end().outcome);
  if (parts_.guardian.board != nullptr) parts_.guardian.board->finishing = true;
  output.finish([this] { return flush_limits(); });
  // After the flush: the report includes output that was lost at the very end.
  auto report = make_report(job);
  if (report.outcome == Outcome::stopped || report.outcome == Outcome::preempted)
    note_stopped(parts_.guardian);
  if (report.outcome == Outcome::cannot_start)
    note_refusal(parts_.guardian, report.start_failure_words);
  parts_.telemetry.settle(report);
  report.is_unwritten = !write(report);
  hand_on_error(report);
  if (report.is_unwritten && report.exit_code == 0) report.exit_code = to_int(ExitCode::output);
  parts_.telemetry.finish(report);
  const std::string block = to_text(report, parts_.color);
  if (!block.empty() && is_told_here(job)) output.say(block);
  output.finish(kReportPatience, kReportPatience);
  return report.exit_code;
}

bool JobEnding::is_told_here(const CoordinatedJob* job) const {
  if (job == nullptr || !parts_.plan.stop.is_from_one_launch) return parts_.messages.tells_job();
  return tells_end({.tells_job = parts_.messages.tells_job(),
                    .has_told_job = parts_.messages.has_told_job(),
                    .is_closed = job->close().has_value(),
                    .is_guardian_lost = parts_.group.guardian_lost.has_value(),
                    .nodes = parts_.terms.nodes(),
                    .outcome = end().outcome});
}

FlushLimits JobEnding::flush_limits() const {
  parts_.course.feed_watchdog();
  const auto& group = parts_.group;
  const bool is_hurried = parts_.is_end_asked() || group.guardian_lost || group.interrupts >= 2;
  return limits_of_last_flush(is_hurried, group.stop_signal != 0, parts_.plan.output.patience);
}

JobReport JobEnding::make_report(const CoordinatedJob* job) const {
  const auto& group = parts_.group;
  const auto& terms = parts_.terms;
  const auto outcome = end().outcome;
  JobRecorder::JobEnd facts{
      .job_id = parts_.job_id,
      .guardian = parts_.guardian.pid,
      .end = end(),
      .group = group,
      .world_size = terms.world_size(),
      .max_restarts = terms.max_restarts(),
      .program = parts_.starter.program(),
      .last_word = {},
      .reason = reason_,
      .restarted_after = terms.started_after(),
      .goodput = parts_.watch.goodput(clock_now())};
  const bool by_signal = outcome == Outcome::stopped || outcome == Outcome::preempted;
  if (group.is_signal_unheard && by_signal)
    facts.reason = signal_name(group.stop_signal) + "; the other nodes could not be told";
  if (job != nullptr && job->close())
    facts.last_word = {*job->close(), job->node_name(), job->closed_at()};
  return parts_.recorder.report(facts);
}

// TorchX and Kubernetes (/dev/termination-log) read it, and a launcher that started this one.
void JobEnding::hand_on_error(const JobReport& report) const {
  const char* path = std::getenv(worker_env::kErrorFile.data());
  const auto* failure = decisive_failure(report);
  if (path == nullptr || *path == '\0' || failure == nullptr || !failure->error ||
      failure->error->json.empty())
    return;
  const auto& status = failure->worker.status;
  const auto* exited = status ? std::get_if<Exited>(&*status) : nullptr;
  const auto* killed = status ? std::get_if<Signaled>(&*status) : nullptr;
  const int code = exited != nullptr ? exited->code : killed != nullptr ? -killed->signo : 1;
  const auto json = with_error_code(failure->error->json, code);
  if (!file_system_answers(path, kLastPatience))
    return parts_.messages.error(
        "the worker's error is not in TORCHELASTIC_ERROR_FILE: its file system gives no answer");
  auto written = write_whole_file(path, json);
  const bool is_mount = written.has_error() && written.error().errnum == EBUSY;
  if (is_mount) written = overwrite_file(path, json);  // it can't be replaced
  if (written.has_error())
    parts_.messages.error("the worker's error is not in TORCHELASTIC_ERROR_FILE: " +
                          written.error().what);
}

bool JobEnding::write(const JobReport& report) const {
  const auto& file = parts_.plan.report_file;
  if (file.empty()) return true;
  const ShortReport instead{to_string(report.outcome),
                            report.exit_code == 0 ? to_int(ExitCode::output) : report.exit_code,
                            "the whole report could not be written", parts_.guardian.pid};
  const auto written =
      file_system_answers(file, kLastPatience)
          ? write_report_file(file, to_json(report), instead)
          : system_error(ETIMEDOUT, "write the report: the file system of '" + file + "'");
  note_report_written(parts_.guardian);
  if (written.has_error()) parts_.messages.error("the report is lost: " + written.error().what);
  return written.has_value();
}

}  // namespace acc::agent
