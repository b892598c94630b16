#include "agent/job_status.hpp"

#include "agent/job_name.hpp"
#include "agent/output/run_folder.hpp"
#include "agent/small_file.hpp"
#include "agent/supervisor.hpp"
#include "agent/watch/job_watch.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <utility>

namespace acc::agent {

namespace {

// Beyond that many workers reading /proc for a request would hold up the loop.
constexpr std::size_t kMeasuredWorkers = 1024;
constexpr std::size_t kShownWords = 64;

double seconds_of(Instant from, Instant to) {
  return std::chrono::duration<double>(to - from).count();
}

std::optional<control::ProcessUsage> usage_of(pid_t pid) {
  static const auto page = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  static const auto ticks = static_cast<std::uint64_t>(::sysconf(_SC_CLK_TCK));
  return control::usage_from_stat(read_small_file("/proc/" + std::to_string(pid) + "/stat"), page,
                                  ticks);
}

}  // namespace

JobStatus::JobStatus(Parts parts)
    : parts_{std::move(parts)}, gpus_{parts_.io}, line_{parts_.io, parts_.output, [this] {
                                                          return line_facts();
                                                        }} {}

void JobStatus::close() {
  gpus_.stop();
  line_.close();
}

control::JobView JobStatus::view(const control::Status& wanted) {
  const auto now = clock_now();
  auto seen = job_view(now);
  add_workers(seen, wanted.last_lines, now);
  if (wanted.gpus && parts_.guardian != 0) add_gpus(seen);
  return seen;
}

control::JobView JobStatus::job_view(Instant now) const {
  const auto& group = parts_.group;
  const auto& terms = parts_.terms;
  const auto& plan = parts_.plan;
  control::JobView seen;
  seen.name = job_name(plan);
  seen.id = parts_.job_id;
  seen.state = control::state_of(group);
  seen.round = group.round;
  seen.ledger = group.ledger;
  seen.max_restarts = terms.max_restarts();
  seen.restart_reason = terms.restart_reason();
  seen.world_size = terms.world_size();
  seen.node = parts_.node_name();
  seen.node_rank = terms.node_rank();
  seen.nodes = terms.nodes();
  seen.guardian = parts_.guardian;
  seen.agent = ::getpid();
  if (parts_.run_folder.holds_logs()) {
    // The asker is in another folder.
    std::error_code none;
    const auto absolute = std::filesystem::absolute(parts_.run_folder.path(), none).string();
    seen.log_folder = absolute.empty() ? parts_.run_folder.path() : absolute;
  }
  seen.seconds = seconds_of(began_, now);
  seen.goodput = parts_.watch.goodput(now);
  seen.losses = parts_.output.losses();
  const auto words = std::min(plan.command.size(), kShownWords);
  seen.command.assign(plan.command.begin(),
                      plan.command.begin() + static_cast<std::ptrdiff_t>(words));
  return seen;
}

void JobStatus::add_workers(control::JobView& seen, bool last_lines, Instant now) const {
  const auto& records = parts_.workers.records();
  seen.workers.reserve(records.size());
  for (const auto& record : records) {
    control::WorkerView worker{record.rank, record.local_rank, record.pid, record.status, 0, {},
                               {}};
    if (last_lines) worker.last_line = parts_.output.last_line(record.local_rank);
    worker.progress = progress_of(record);
    const bool has_begun = record.started != Instant{};
    if (has_begun) worker.seconds = seconds_of(record.started, record.status ? record.ended : now);
    if (record.is_living() && seen.workers.size() < kMeasuredWorkers)
      worker.usage = usage_of(record.pid);
    seen.workers.push_back(std::move(worker));
  }
}

void JobStatus::add_gpus(control::JobView& seen) {
  const auto& samples = gpus_.ask();
  for (const auto& one : samples)
    seen.gpus.push_back({one.index, one.percent, one.memory_used, one.memory_total});
  std::vector<std::int64_t> pids(seen.workers.size());
  for (std::size_t i = 0; i < pids.size(); ++i)
    pids[i] = seen.workers[i].status ? 0 : seen.workers[i].pid;
  const auto used = gpu::gpus_of_workers(samples, pids, [](std::int64_t pid) {
    return std::int64_t{::getpgid(static_cast<pid_t>(pid))};
  });
  for (std::size_t i = 0; i < used.size(); ++i) seen.workers[i].gpus = used[i];
}

std::optional<control::WorkerView::Progress> JobStatus::progress_of(
    const WorkerRecord& record) const {
  const auto& watch = parts_.watch;
  const auto beat = watch.beat(record.local_rank);
  if (!beat || beat->time_ns == 0) return std::nullopt;
  const auto now = heartbeat::coarse_now_ns();
  const auto silent_ns = now > beat->time_ns ? now - beat->time_ns : 0;
  return control::WorkerView::Progress{beat->step, static_cast<double>(silent_ns) / 1e9,
                                       watch.steps_per_second(record.local_rank), beat->section};
}

std::vector<WorkerProgress> JobStatus::progress() const {
  std::vector<WorkerProgress> workers;
  for (const auto& record : parts_.workers.records()) {
    if (!record.is_living()) continue;
    auto progress = progress_of(record);
    if (!progress) continue;
    workers.push_back({record.rank, progress->step, progress->steps_per_second,
                       progress->seconds_since_heartbeat, std::move(progress->section)});
  }
  return workers;
}

StatusFacts JobStatus::line_facts() const {
  const auto& group = parts_.group;
  StatusFacts facts;
  facts.phase = group.phase;
  facts.is_coordinated = group.coordinated;
  facts.ends_for_good = ends_for_good(group);
  facts.alive = group.alive;
  facts.workers = group.size;
  facts.ledger = group.ledger;
  facts.max_restarts = parts_.terms.max_restarts();
  facts.reason = parts_.terms.restart_reason();
  const auto due =
      group.phase == Phase::backing_off ? parts_.timers.expiry(Timer::backoff) : group.grace.ends;
  facts.kills_next = group.term_sent || group.alive == 0;  // else SIGTERM comes first
  facts.left = std::max(Millis{0}, std::chrono::duration_cast<Millis>(due - clock_now()));
  return facts;
}

}  // namespace acc::agent
