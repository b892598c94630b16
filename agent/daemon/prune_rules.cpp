#include "agent/daemon/prune_rules.hpp"

#include <algorithm>
#include <deque>
#include <map>
#include <tuple>

namespace acc::agent::daemon {

namespace {

struct Kept {
  std::size_t count = 0;
  std::uint64_t bytes = 0;
  std::deque<const EndedJob*> jobs;  ///< the oldest first

  void add(const EndedJob& job) {
    ++count;
    bytes += job.bytes;
    jobs.push_back(&job);
  }
  void remove(const EndedJob& job) {
    --count;
    bytes -= job.bytes;
  }
};

}  // namespace

std::vector<std::string> jobs_to_prune(const PruneRules& rules, std::vector<EndedJob> ended,
                                       std::int64_t now_ms) {
  std::ranges::sort(ended, [](const auto& a, const auto& b) {
    return std::tie(a.ended_ms, a.id) < std::tie(b.ended_ms, b.id);
  });
  std::map<std::uint32_t, Kept> users;
  Kept all;
  for (const auto& job : ended) {
    users[job.user].add(job);
    all.add(job);
  }
  std::vector<std::string> pruned;
  const auto drop_oldest_of = [&](Kept& user) {
    const EndedJob& job = *user.jobs.front();
    pruned.push_back(job.id);
    all.remove(job);
    user.remove(job);
    user.jobs.pop_front();
  };
  const auto most = [&](auto measure) -> Kept& {
    return std::ranges::max_element(users, {}, [&](const auto& one) { return measure(one.second); })
        ->second;
  };
  for (auto& [uid, user] : users) {
    while (!user.jobs.empty() && now_ms - user.jobs.front()->ended_ms >= rules.max_age_ms)
      drop_oldest_of(user);
  }
  const auto newest = std::min(rules.max_ended, kNewestKept);
  while (all.count > rules.max_ended) {
    auto& user = most([](const Kept& kept) { return kept.count; });
    if (user.count <= newest) break;
    drop_oldest_of(user);
  }
  while (all.bytes > rules.max_bytes && all.count > 0)
    drop_oldest_of(most([](const Kept& kept) { return kept.bytes; }));
  return pruned;
}

std::optional<std::int64_t> next_prune_ms(const PruneRules& rules,
                                          const std::vector<EndedJob>& ended) {
  if (ended.empty()) return std::nullopt;
  const auto oldest = std::ranges::min_element(ended, {}, &EndedJob::ended_ms);
  return oldest->ended_ms + rules.max_age_ms;
}

}  // namespace acc::agent::daemon
