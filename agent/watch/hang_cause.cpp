#include "agent/watch/hang_cause.hpp"

#include "agent/evidence/culprits.hpp"
#include "common/duration.hpp"

#include <algorithm>
#include <cstdint>

namespace acc::agent {

namespace {

std::string silence_words(const SilentRank& silent, const evidence::RankSummary& rank) {
  if (!silent.section.empty())
    return "hung in section '" + silent.section + "', which may take " + describe(silent.limit);
  if (silent.limit == Millis{0})
    return "hung: no worker used the CPU, read or wrote anything for " + describe(silent.silent);
  std::string text = "hung: no heartbeat for " + describe(silent.silent);
  if (rank.has_beaten) return text + " after step " + std::to_string(rank.step);
  return text + ", before its first step";
}

// In the same order on all nodes, or they would name different ranks.
std::vector<evidence::RankSummary> silent_ranks(const std::vector<evidence::NodeEvidence>& nodes) {
  std::vector<evidence::RankSummary> ranks;
  for (const auto& node : nodes)
    for (const auto& rank : node.ranks)
      if (rank.summary.is_silent) ranks.push_back(rank.summary);
  std::ranges::sort(ranks, {}, &evidence::RankSummary::rank);
  return ranks;
}

}  // namespace

HangCause cause_of_hang(const std::vector<SilentRank>& silent, const std::vector<Rank>& ranks,
                        const std::vector<evidence::NodeEvidence>& nodes) {
  const auto all = silent_ranks(nodes);
  const auto culprits = evidence::find_culprits(all);
  const auto& culprit = all.at(culprits.which.front());
  const auto here = std::ranges::find_if(silent, [&](const SilentRank& one) {
    return ranks.at(one.rank.value()) == culprit.rank;  // the names of nodes may be equal
  });
  const bool is_here = here != silent.end();
  const auto& own = is_here ? *here : silent.front();
  std::string text = silence_words(own, culprit);
  if (!culprit.at.empty()) text += ", at " + culprit.at;
  if (!culprits.why.empty()) text += "; " + culprits.why;
  if (culprits.which.size() > 1) {
    std::vector<std::uint32_t> others;
    for (std::size_t i = 1; i < culprits.which.size(); ++i)
      others.push_back(all[culprits.which[i]].rank.value());
    text += "; likewise " + evidence::name_ranks(others);
  }
  if (!is_here)
    text = "hung: waits for rank " + std::to_string(culprit.rank.value()) + " on " + culprit.node +
           ", which " + text;
  return {own.rank, is_here, std::move(text)};
}

}  // namespace acc::agent
