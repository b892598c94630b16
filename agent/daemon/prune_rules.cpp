#include "agent/daemon/prune_rules.hpp"

#include <algorithm>
#include <tuple>

namespace acc::agent::daemon {

std::vector<std::string> jobs_to_prune(const PruneRules& rules, std::vector<EndedJob> ended,
                                       std::int64_t now_ms) {
  std::ranges::sort(ended, [](const auto& a, const auto& b) {
    return std::tie(a.ended_ms, a.id) < std::tie(b.ended_ms, b.id);
  });
  std::uint64_t bytes = 0;
  for (const auto& job : ended) bytes += job.bytes;
  std::vector<std::string> pruned;
  std::size_t left = ended.size();
  for (const auto& job : ended) {
    const bool is_old = now_ms - job.ended_ms >= rules.max_age_ms;
    if (!is_old && left <= rules.max_ended && bytes <= rules.max_bytes) break;
    pruned.push_back(job.id);
    --left;
    bytes -= job.bytes;
  }
  return pruned;
}

std::optional<std::int64_t> next_prune_ms(const PruneRules& rules,
                                          const std::vector<EndedJob>& ended) {
  if (ended.empty()) return std::nullopt;
  const auto oldest = std::ranges::min_element(ended, {}, &EndedJob::ended_ms);
  return oldest->ended_ms + rules.max_age_ms;
}

}  // namespace acc::agent::daemon
