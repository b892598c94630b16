#include "runtime/bootstrap/lost_watch.hpp"

#include "common/agent_client.hpp"
#include "common/text.hpp"
#include "runtime/bootstrap/quiet_thread.hpp"

#include <algorithm>
#include <cstdlib>
#include <list>
#include <mutex>
#include <thread>

namespace acc::runtime {

namespace {

struct Entry {
  Backend* backend = nullptr;
  std::vector<int> job_ranks;
};

struct WatchedGroups {
  std::mutex mutex;
  std::list<Entry> entries;
  std::vector<worker_socket::LostRank> lost;  ///< so far
  bool runs = false;
};

// Never destroyed: the thread may still be in its question when the process ends.
WatchedGroups& watched_groups() {
  static auto* const only = new WatchedGroups;
  return *only;
}

void tell(const Entry& entry, const worker_socket::LostRank& lost) {
  const auto at = std::find(entry.job_ranks.begin(), entry.job_ranks.end(),
                            static_cast<int>(lost.rank.value()));
  if (at == entry.job_ranks.end()) return;
  entry.backend->lost(static_cast<int>(at - entry.job_ranks.begin()), lost.how);
}

void listen(AgentClient line) {
  auto& all = watched_groups();
  for (;;) {
    const auto answer = line.lost(worker_socket::kLongestWait);
    if (!answer) return;  // the round is over, or the agent is gone: it told what it could
    {
      const std::lock_guard lock{all.mutex};
      const auto before = all.lost.size();
      for (const auto& lost : *answer) {
        if (std::find(all.lost.begin(), all.lost.end(), lost) == all.lost.end())
          all.lost.push_back(lost);
      }
      if (all.lost.size() == before) return;  // answered at once from now on
      for (const auto& entry : all.entries)
        for (auto i = before; i < all.lost.size(); ++i) tell(entry, all.lost[i]);
    }
  }
}

}  // namespace

struct LostWatch::Watched {
  std::list<Entry>::iterator at;

  Watched(Backend& backend, std::vector<int> job_ranks) {
    auto& all = watched_groups();
    const std::lock_guard lock{all.mutex};
    at = all.entries.insert(all.entries.end(), {&backend, std::move(job_ranks)});
    for (const auto& lost : all.lost) tell(*at, lost);
  }
  ~Watched() {
    auto& all = watched_groups();
    const std::lock_guard lock{all.mutex};
    all.entries.erase(at);
  }
  Watched(const Watched&) = delete;
  Watched& operator=(const Watched&) = delete;
};

std::shared_ptr<LostWatch::Watched> LostWatch::watch(const std::string& agent_socket, int job_rank,
                                                     Backend& backend, std::vector<int> job_ranks) {
  auto watched = std::make_shared<Watched>(backend, std::move(job_ranks));
  auto& all = watched_groups();
  const std::lock_guard lock{all.mutex};
  if (all.runs) return watched;
  const char* round = std::getenv("ACC_ROUND");
  const auto number = parse_number<std::uint64_t>(round != nullptr ? round : "");
  auto line = AgentClient::connect(agent_socket, acc::Rank{static_cast<std::uint32_t>(job_rank)},
                                   number ? std::optional{Round{*number}} : std::nullopt);
  // Without that line the group works, and hears of deaths on this host by other ways.
  if (!line) return watched;
  quiet_thread([held = *std::move(line)]() mutable { listen(std::move(held)); }).detach();
  all.runs = true;
  return watched;
}

}  // namespace acc::runtime
