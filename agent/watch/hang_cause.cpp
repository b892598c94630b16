#include "agent/watch/hang_cause.hpp"

#include "agent/evidence/culprits.hpp"
#include "common/duration.hpp"

#include <algorithm>
#include <cstdint>

namespace acc::agent {

namespace {

std::string silence_words(const SilentRank& silent, const evidence::RankSummary& rank) {
  if (!rank.is_silent && rank.is_starting) {
    const std::string since = rank.has_beaten ? "no heartbeat since its first"
                                              : "no heartbeat in this attempt";
    return (rank.state == 'R' ? "hung, or is busy (state R): " : "hung: ") + since;
  }
  if (!rank.is_silent)
    return "hung: sends heartbeats, but lags at step " + std::to_string(rank.step);
  if (rank.is_overdue && !silent.is_overdue())  // of another node
    return "hung in a section, for longer than that may take";
  if (silent.is_overdue())
    return "hung in section '" + silent.section + "', which may take " + describe(silent.limit);
  if (silent.limit == Millis{0})
    return "hung: no worker used the CPU, read or wrote anything for " + describe(silent.silent);
  std::string text = "hung: no heartbeat for " + describe(silent.silent);
  if (rank.has_beaten) return text + " after step " + std::to_string(rank.step);
  return text + ", before its first step";
}

// In the same order on all nodes, or they would name different ranks.
std::vector<evidence::RankSummary> all_ranks(const std::vector<evidence::NodeEvidence>& nodes) {
  std::vector<evidence::RankSummary> ranks;
  for (const auto& node : nodes)
    for (const auto& rank : node.ranks)
      ranks.push_back(rank.summary);
  std::ranges::sort(ranks, {}, &evidence::RankSummary::rank);
  return ranks;
}

}  // namespace

HangCause cause_of_hang(const std::vector<SilentRank>& silent, const std::vector<Rank>& ranks,
                        const std::vector<evidence::NodeEvidence>& nodes) {
  const auto all = all_ranks(nodes);
  const auto culprits = evidence::find_culprits(all);
  const auto& culprit = all.at(culprits.which.front());
  const auto here = std::ranges::find_if(silent, [&](const SilentRank& one) {
    return ranks.at(one.rank.value()) == culprit.rank;  // the names of nodes may be equal
  });
  const auto local = std::ranges::find(ranks, culprit.rank);
  const bool is_here = local != ranks.end();
  const auto own = here != silent.end() ? *here : silent.empty() ? SilentRank{} : silent.front();
  const auto worker =
      is_here ? LocalRank{static_cast<std::uint32_t>(local - ranks.begin())} : own.rank;
  std::string text = silence_words(own, culprit);
  if (!culprit.at.empty()) text += ", at " + culprit.at;
  if (!culprits.why.empty()) text += "; " + culprits.why;
  if (culprits.which.size() > 1) {
    std::vector<std::uint32_t> others;
    for (std::size_t i = 1; i < culprits.which.size(); ++i)
      others.push_back(all[culprits.which[i]].rank.value());
    text += "; likewise " + evidence::name_ranks(others);
    if (culprits.why.empty() && !culprit.is_overdue) text += ": nothing tells them apart";
  }
  for (const auto i : culprits.not_waiting) {
    text += "; rank " + std::to_string(all[i].rank.value()) + " doesn't wait for it";
    if (!all[i].at.empty()) text += ", at " + all[i].at;
  }
  if (const auto words = evidence::unheard_words(all, culprits); !words.empty())
    text += "; " + words;
  if (!is_here)
    text = "hung: waits for rank " + std::to_string(culprit.rank.value()) + " on " + culprit.node +
           ", which " + text;
  return {worker, is_here, std::move(text)};
}

}  // namespace acc::agent
