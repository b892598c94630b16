#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

/// Which ended jobs are forgotten (pure).
namespace acc::agent::daemon {

/// Of each user, that no number of others' jobs pushes out; with a lower max_ended so many.
inline constexpr std::size_t kNewestKept = 10;

struct PruneRules {
  std::int64_t max_age_ms = 30LL * 24 * 3600 * 1000;  ///< since the end
  std::size_t max_ended = 1000;            ///< but for the newest kNewestKept of each user
  std::uint64_t max_bytes = 10ULL << 30U;  ///< of all ended jobs' folders
};

struct EndedJob {
  std::string id;
  std::int64_t ended_ms = 0;
  std::uint64_t bytes = 0;
  std::uint32_t user = 0;  ///< uid
};

/// What is too old; then of the user who has the most, jobs or bytes, the oldest: nobody's jobs go
/// because another ends thousands. Only ended jobs are ever given to it.
[[nodiscard]] std::vector<std::string> jobs_to_prune(const PruneRules& rules,
                                                     std::vector<EndedJob> ended,
                                                     std::int64_t now_ms);
/// When the next one is too old; nothing: none will be.
[[nodiscard]] std::optional<std::int64_t> next_prune_ms(const PruneRules& rules,
                                                        const std::vector<EndedJob>& ended);

}  // namespace acc::agent::daemon
