#include "agent/lost_ranks.hpp"

#include "common/exit_status.hpp"

#include <algorithm>
#include <csignal>

namespace acc::agent {

using rendezvous::Failure;
using worker_socket::LostRank;

namespace {

constexpr std::uint32_t kMostOfANode = 4096;  // what a peer says is no reason for a long loop

std::string words_for(int signo, bool out_of_memory) {
  return "killed by " + signal_name(signo) + (out_of_memory ? " (out of memory)" : "");
}

// After an election the name may be unknown.
std::string node_words(const std::string& name) {
  return name.empty() ? "its node was lost" : "its node " + name + " was lost";
}

std::string words_for(const Failure& failure) {
  const std::string where = " on " + failure.node;
  if (failure.is_hang()) return "hung" + where;
  switch (failure.kind) {
    case Failure::Kind::exited:
      return "exit code " + std::to_string(failure.code) + where;
    case Failure::Kind::signaled:
      return words_for(failure.code, failure.out_of_memory) + where;
    case Failure::Kind::cannot_start:
      return "could not be started" + where;
    case Failure::Kind::node_lost:
    case Failure::Kind::unkillable:
      break;
  }
  return node_words(failure.node);
}

}  // namespace

LostRank lost_here(const WorkerRecord& worker, const OomFacts& oom) {
  LostRank lost{worker.rank, worker.pid, {}};
  if (const auto* killed = std::get_if<Signaled>(&*worker.status)) {
    lost.how = words_for(killed->signo, killed->signo == SIGKILL && is_out_of_memory(oom));
  } else {
    lost.how = "exit code " + std::to_string(std::get<Exited>(*worker.status).code);
  }
  return lost;
}

std::vector<LostRank> lost_by(const rendezvous::Stop& stop) {
  std::vector<LostRank> lost;
  if (stop.failure)
    lost.push_back({stop.failure->rank, stop.failure->pid, words_for(*stop.failure)});
  for (const auto& node : stop.lost) {
    const std::string words = node_words(node.node);
    for (std::uint32_t i = 0; i < std::min(node.ranks.count, kMostOfANode); ++i) {
      const Rank rank = node.ranks.of(LocalRank{i});
      if (!stop.failure || rank != stop.failure->rank) lost.push_back({rank, 0, words});
    }
  }
  return lost;
}

}  // namespace acc::agent
