#include "runtime/world/peer_failure_listener.hpp"

#include "common/agent_client.hpp"
#include "common/text.hpp"
#include "runtime/fork.hpp"
#include "runtime/quiet_thread.hpp"

#include <algorithm>
#include <cstdint>
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

struct Groups {
  std::mutex mutex;
  std::list<Entry> entries;
  std::vector<worker_socket::LostRank> lost;  ///< so far
  bool runs = false;
};

// Not destroyed at the end: the thread may still be in a request when the process ends.
Groups& groups() { return only_of_process<Groups>(); }

void report(const Entry& entry, const worker_socket::LostRank& lost) {
  const auto at = std::find(entry.job_ranks.begin(), entry.job_ranks.end(),
                            static_cast<int>(lost.rank.value()));
  if (at == entry.job_ranks.end()) return;
  entry.backend->lost(static_cast<int>(at - entry.job_ranks.begin()), lost.how);
}

void run(AgentClient connection) {
  auto& all = groups();
  for (;;) {
    const auto answer = connection.lost(worker_socket::kLongestWait);
    if (!answer) return;  // the round is over, or the agent is gone
    {
      const std::lock_guard lock{all.mutex};
      const auto before = all.lost.size();
      for (const auto& lost : *answer) {
        if (std::find(all.lost.begin(), all.lost.end(), lost) == all.lost.end())
          all.lost.push_back(lost);
      }
      if (all.lost.size() == before) return;  // from now on every request would return immediately
      for (const auto& entry : all.entries)
        for (auto i = before; i < all.lost.size(); ++i) report(entry, all.lost[i]);
    }
  }
}

}  // namespace

struct PeerFailureListener::Watched {
  Groups& all = groups();
  const std::uint64_t made_in = fork_generation();
  std::list<Entry>::iterator at;

  Watched(Backend& backend, std::vector<int> job_ranks) {
    const std::lock_guard lock{all.mutex};
    at = all.entries.insert(all.entries.end(), {&backend, std::move(job_ranks)});
    for (const auto& lost : all.lost) report(*at, lost);
  }
  ~Watched() {
    if (made_in != fork_generation()) return;  // the parent's: its lock may be held for ever
    const std::lock_guard lock{all.mutex};
    all.entries.erase(at);
  }
  Watched(const Watched&) = delete;
  Watched& operator=(const Watched&) = delete;
};

std::shared_ptr<PeerFailureListener::Watched> PeerFailureListener::watch(
    const std::string& agent_socket, int job_rank, Backend& backend, std::vector<int> job_ranks) {
  auto watched = std::make_shared<Watched>(backend, std::move(job_ranks));
  auto& all = groups();
  const std::lock_guard lock{all.mutex};
  if (all.runs) return watched;
  const char* round = std::getenv("ACC_ROUND");
  const auto number = parse_number<std::uint64_t>(round != nullptr ? round : "");
  auto connection =
      AgentClient::connect(agent_socket, acc::Rank{static_cast<std::uint32_t>(job_rank)},
                           number ? std::optional{Round{*number}} : std::nullopt);
  // The group works without this connection; deaths on this host are detected in other ways.
  if (!connection) return watched;
  quiet_thread([held = *std::move(connection)]() mutable { run(std::move(held)); }).detach();
  all.runs = true;
  return watched;
}

}  // namespace acc::runtime
