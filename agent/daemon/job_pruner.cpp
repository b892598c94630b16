#include "agent/daemon/job_pruner.hpp"

#include "agent/daemon/on_pool.hpp"
#include "common/log.hpp"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <map>
#include <utility>
#include <vector>

namespace acc::agent::daemon {

using boost::asio::awaitable;
using namespace std::chrono_literals;

// What kept it from its work may be over: a job that took all processes of a container.
static constexpr std::chrono::milliseconds kTryAgain = 60s;

JobPruner::JobPruner(const Parts& parts, const PruneRules& rules)
    : parts_{parts}, rules_{rules}, timer_{parts.io} {}

JobPruner::~JobPruner() {
  for (auto& [what, pool] : slow_) pool.join();
}

boost::asio::thread_pool& JobPruner::slow(Slow what) {
  constexpr std::size_t kRemovers = 4;
  return slow_.try_emplace(what, what == Slow::removing ? kRemovers : 1).first->second;
}

void JobPruner::set_rules(const PruneRules& rules) {
  rules_ = rules;
  prune_later();
}

void JobPruner::close() {
  is_closed_ = true;
  timer_.cancel();
}

// ---- the rules ----

void JobPruner::prune_later() {
  if (is_pruning_ || is_closed_) return;
  is_pruning_ = true;
  parts_.spawn("prune", prune());
}

awaitable<std::vector<EndedJob>> JobPruner::ended_jobs() {
  std::vector<EndedJob> ended;
  for (const auto& [id, job] : std::map{parts_.jobs}) {
    auto& stored = job->stored;
    // A job of jobs.d that was stopped stays so by its record: without one its file is a new job.
    if (stored.life.phase != Phase::ended || job->is_leaving || !stored.job_file.empty()) continue;
    if (stored.bytes == 0) {
      const auto starts = stored.life.starts;
      std::function<std::uint64_t()> count = [this, id = id] { return parts_.folder.bytes_of(id); };
      const auto bytes = co_await on_pool(slow(Slow::counting), std::move(count));
      const bool is_as_before = stored.life.phase == Phase::ended && stored.life.starts == starts;
      if (!is_as_before) continue;  // restarted meanwhile
      stored.bytes = std::max<std::uint64_t>(1, bytes);
    }
    ended.push_back({id, stored.ended_ms, stored.bytes, stored.uid});
  }
  slow_.erase(Slow::counting);
  co_return ended;
}

awaitable<void> JobPruner::prune() {
  std::optional<std::int64_t> next;
  try {
    next = co_await prune_all();
  } catch (const std::exception& failed) {  // memory or threads ran out
    log::warn("jobs_not_pruned", {{"why", failed.what()}});
    next = wall_ms() + kTryAgain.count();
  }
  is_pruning_ = false;
  if (!next || is_closed_) co_return;
  // Also where the wall clock is set meanwhile it looks again at least once a day.
  const auto wait = std::chrono::milliseconds{std::max<std::int64_t>(*next - wall_ms(), 1000)};
  timer_.expires_after(std::min<std::chrono::milliseconds>(wait, 24h));
  timer_.async_wait([this](boost::system::error_code cancelled) {
    if (!cancelled) prune_later();
  });
}

awaitable<std::optional<std::int64_t>> JobPruner::prune_all() {
  auto ended = co_await ended_jobs();
  for (const auto& id : jobs_to_prune(rules_, ended, wall_ms())) {
    const auto job = find_job(parts_.jobs, id);
    if (!job || job->stored.life.phase != Phase::ended) continue;
    co_await settled(job);
    if (job->stored.life.phase == Phase::ended && !job->is_leaving) (void)co_await drop(job);
  }
  std::erase_if(ended, [&](const auto& one) { return !find_job(parts_.jobs, one.id); });
  co_return next_prune_ms(rules_, ended);
}

// ---- the folders ----

awaitable<Result<void>> JobPruner::drop(JobPtr job) {
  job->is_leaving = true;
  std::function<Result<void>()> move_away = [this, id = job->id()] {
    return parts_.folder.drop_job(id);
  };
  const auto dropped = co_await on_pool(parts_.files, std::move(move_away));
  if (dropped.has_error()) {
    job->is_leaving = false;
    log::error("job_not_removed", {{"job", job->id()}, {"why", dropped.error().what}});
    co_return dropped;
  }
  parts_.jobs.erase(job->id());
  parts_.events.report("removed", job.get(), "removed");
  empty_trash_of(job->stored.uid);
  co_return Result<void>{};
}

void JobPruner::empty_trash_later() { parts_.spawn("empty trash", empty_trash()); }

// What can't be read now is looked at again with the next removal.
awaitable<std::vector<StateFolder::Trash>> JobPruner::trash(boost::asio::thread_pool& pool) {
  std::function<Result<std::vector<StateFolder::Trash>>()> look = [this] {
    return parts_.folder.trash();
  };
  auto found = co_await on_pool(pool, std::move(look));
  if (found.has_value()) co_return std::move(*found);
  log::warn("trash_not_empty", {{"why", found.error().what}});
  co_return std::vector<StateFolder::Trash>{};
}

awaitable<void> JobPruner::empty_trash() {
  for (const auto& one : co_await trash(parts_.files)) empty_trash_of(one.uid);
}

void JobPruner::empty_trash_of(uid_t uid) {
  const auto [at, is_first] = removing_.try_emplace(uid, true);
  at->second = true;
  if (is_first) parts_.spawn("empty trash", remove_all_of(uid));
}

// One folder of each user at a time: nobody waits until another's millions of files are deleted.
awaitable<void> JobPruner::remove_all_of(uid_t uid) {
  try {
    co_await remove_folders_of(uid);
  } catch (const std::exception& failed) {  // as above; the next removal deletes them
    log::warn("trash_not_empty", {{"why", failed.what()}});
  }
  removing_.erase(uid);
  if (removing_.empty()) slow_.erase(Slow::removing);  // its threads are of no use now
}

awaitable<void> JobPruner::remove_folders_of(uid_t uid) {
  while (std::exchange(removing_[uid], false)) {
    for (const auto& one : co_await trash(slow(Slow::removing))) {
      if (one.uid != uid) continue;
      std::function<Result<void>()> remove = [this, one] {
        return parts_.folder.remove_trash(one.name);
      };
      const auto removed = co_await on_pool(slow(Slow::removing), std::move(remove));
      if (removed.has_error()) log::warn("trash_not_empty", {{"why", removed.error().what}});
    }
  }
}

}  // namespace acc::agent::daemon
