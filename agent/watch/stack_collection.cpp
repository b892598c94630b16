#include "agent/watch/stack_collection.hpp"

#include "agent/evidence/stacks_report.hpp"
#include "agent/heartbeat_board.hpp"
#include "agent/job_folder_notes.hpp"
#include "agent/output/file_system_check.hpp"
#include "agent/output/run_folder.hpp"
#include "agent/report.hpp"
#include "agent/user_messages.hpp"
#include "agent/worker_group.hpp"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <system_error>
#include <utility>

namespace acc::agent {

namespace {

constexpr Millis kTogetherTime{2'000};

}  // namespace

std::vector<std::string> stack_files(const std::string& attempt_folder,
                                     const std::string& temporary, const std::string& job_id,
                                     std::uint32_t number) {
  std::vector<std::string> files;
  const std::string name = "stacks-" + std::to_string(number) + ".txt";
  if (!attempt_folder.empty()) files.push_back(attempt_folder + "/" + name);
  const std::string first = temporary.starts_with('/') ? temporary : "/tmp";
  for (const std::string& folder : {first, std::string{"/var/tmp"}, std::string{"/dev/shm"}}) {
    auto file = folder + "/acc-" + job_id + "-" + name;
    if (std::ranges::find(files, file) == files.end()) files.push_back(std::move(file));
  }
  return files;
}

std::vector<evidence::FinishedRank> finished_ranks(const std::vector<WorkerRecord>& workers,
                                                   Instant now) {
  std::vector<evidence::FinishedRank> finished;
  for (const auto& worker : workers) {
    if (!worker.status || !is_success(*worker.status) || worker.asked_to_end) continue;
    const auto before = std::chrono::duration_cast<Millis>(now - worker.ended);
    finished.push_back({worker.rank, std::max(before, Millis{0})});
  }
  return finished;
}

StackCollection::StackCollection(const Parts& parts, std::function<void(Instant, Instant)> on_held)
    : parts_{parts}, on_held_{std::move(on_held)}, run_{parts.io} {}

// ---- the course of the job ----

void StackCollection::round_started(const HeartbeatBoard& board, Round round) {
  board_ = &board;
  round_ = round;
}

void StackCollection::round_ended() {
  board_ = nullptr;
  run_.cancel();
  cancel_waiting("the workers are ending");
}

void StackCollection::suspended() {
  run_.cancel_for_stop();
  cancel_waiting("the workers were stopped by Ctrl-Z");
}

void StackCollection::cancel_waiting(const char* why) {
  for (const auto& done : std::exchange(waiting_, {})) done(Error{Errc::unavailable, why});
}

// ---- of this node ----

std::vector<std::string> StackCollection::next_files() {
  std::string folder;
  if (parts_.run_folder.holds_logs() && file_system_answers(parts_.run_folder.path()))
    folder = parts_.run_folder.make_attempt(round_);
  std::error_code none;
  if (!folder.empty()) folder = std::filesystem::absolute(folder, none).string();
  const char* const temporary = std::getenv("TMPDIR");
  return stack_files(folder, temporary == nullptr ? "" : temporary, parts_.job_id, ++files_);
}

void StackCollection::tell(const evidence::Answer& answer) const {
  if (answer.file.empty()) {
    parts_.messages.warning("the stacks can't be saved (" + answer.not_saved + "):");
    return parts_.messages.text(answer.text);
  }
  parts_.messages.warning("stacks of all ranks here: " + answer.file +
                          (answer.not_saved.empty() ? "" : " (" + answer.not_saved + ")"));
}

evidence::Request StackCollection::request_for(const evidence::Question& question) const {
  evidence::Request request;
  const auto id = daemon_id_of(std::getenv(kJobFolderVariable));  // as `acc-ctl stacks ID` has it
  request.facts.job = id.empty() ? parts_.job_id : id;
  request.facts.node = parts_.node;
  request.facts.round = round_.value();
  request.facts.why = question.why;
  request.facts.purpose = question.purpose;
  request.facts.when = utc_text(std::chrono::system_clock::now());
  return request;
}

void StackCollection::collect(const Request& wanted, Collected done) {
  if (board_ == nullptr) return done(Error{Errc::unavailable, "no worker runs now"});
  waiting_.push_back(std::move(done));
  if (is_running()) return;  // the same answer serves all
  auto request = request_for(wanted.question);
  request.limit_ms = wanted.limit.count();
  request.has_page = board_->fd() >= 0;
  if (wanted.is_kept) request.files = next_files();
  request.facts.finished = finished_ranks(parts_.workers.records(), clock_now());
  for (const auto& record : parts_.workers.records()) {
    if (!record.is_living()) continue;
    const auto silent = std::ranges::find(wanted.silent, record.local_rank, &SilentRank::rank);
    const bool is_silent = silent != wanted.silent.end();
    const bool is_stuck = std::ranges::find(wanted.stuck, record.local_rank) != wanted.stuck.end();
    request.workers.push_back({record.rank, record.local_rank, record.pid, is_silent,
                               is_silent && silent->is_overdue(), is_stuck});
  }
  const bool is_kept = !request.files.empty();
  const Instant began = clock_now();
  run_.start(request, board_->fd(), [this, is_kept, began](Result<evidence::Answer> answer) {
    on_held_(began, clock_now());
    if (!answer) {
      parts_.messages.warning(answer.error().what);
    } else if (is_kept) {
      tell(*answer);
    }
    for (const auto& one : std::exchange(waiting_, {})) one(answer);
  });
}

// ---- of several nodes ----

void StackCollection::write_together(const evidence::Question& question, Evidence nodes,
                                     std::vector<std::string> missing, const std::string& file,
                                     Collected done) {
  auto request = request_for(question);
  request.facts.missing = std::move(missing);
  request.limit_ms = kTogetherTime.count();
  if (!file.empty()) request.files.push_back(file);
  request.gathered = std::move(nodes);
  const auto without_file = [facts = request.facts, gathered = request.gathered] {
    return evidence::Answer{evidence::text_of_nodes(facts, gathered), {}, {}};
  };
  // With the round all our children are ended.
  if (board_ == nullptr) return done(without_file());
  std::erase_if(together_, [](const auto& run) { return !run->is_running(); });
  together_.push_back(std::make_unique<evidence::EvidenceRun>(parts_.io));
  together_.back()->start(
      request, -1, [this, without_file, done = std::move(done)](Result<evidence::Answer> answer) {
        if (answer && !answer->not_saved.empty())
          parts_.messages.warning("stacks of the other nodes can't be added: " + answer->not_saved);
        done(answer ? std::move(answer) : without_file());
      });
}

}  // namespace acc::agent
