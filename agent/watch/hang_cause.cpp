#include "agent/watch/hang_cause.hpp"

#include "agent/evidence/culprits.hpp"
#include "common/duration.hpp"

#include <algorithm>
#include <cstdint>

namespace acc::agent {

namespace {

// @param awaited  "may wait for rank 1: ", or nothing
std::string silence_words(const SilentRank& silent, const evidence::RankSummary& rank,
                          const std::string& awaited) {
  if (!rank.is_silent && rank.is_starting) {
    const std::string since = rank.has_beaten ? "no heartbeat since its first"
                                              : "no heartbeat in this attempt";
    return (rank.state == 'R' ? "hung, or is busy (state R): " : "hung: ") + since;
  }
  if (!rank.is_silent)
    return "hung: sends heartbeats, but only of step " + std::to_string(rank.step);
  if (rank.is_overdue && !silent.is_overdue())  // of another node
    return "hung in a section, for longer than that may take";
  if (silent.is_overdue())
    return "hung in section '" + silent.section + "', which may take " + describe(silent.limit);
  if (silent.limit == Millis{0})
    return "hung: " + awaited + "no worker used the CPU, read or wrote anything for " +
           describe(silent.silent);
  std::string text = "hung: " + awaited + "no heartbeat for " + describe(silent.silent);
  if (rank.has_beaten) return text + " after step " + std::to_string(rank.step);
  return text + (silent.is_successor ? ", none since the program before it ended"
                                     : ", before its first step");
}

// By its stack, or as nothing tells it from the others: a wait of the program's own looks like
// work.
bool may_wait(const evidence::RankSummary& rank, const evidence::Culprits& culprits) {
  const bool is_stopped = rank.state == 'T' || rank.state == 't' || rank.state == 'D';
  if (!rank.is_silent || rank.is_overdue || is_stopped) return false;
  const auto waits = evidence::waits(rank);
  return waits.value_or(false) || (culprits.why.empty() && (culprits.which.size() > 1 || !waits));
}

// "rank 2; ranks 1,3, at f (x.py:7)": those in the place of the first one have none, and of many
// places not all are told.
std::string other_culprits(const std::vector<evidence::RankSummary>& all,
                           const evidence::Culprits& culprits) {
  constexpr std::size_t kMostPlaces = 3;
  using Group = std::pair<std::string, std::vector<std::uint32_t>>;
  std::vector<Group> groups{{std::string{}, {}}};
  const auto& first = all[culprits.which.front()];
  for (std::size_t i = 1; i < culprits.which.size(); ++i) {
    const auto& rank = all[culprits.which[i]];
    const auto place = rank.at.empty() || rank.at == first.at ? std::string{} : "at " + rank.at;
    auto group = std::ranges::find(groups, place, &Group::first);
    if (group == groups.end()) {
      if (groups.size() <= kMostPlaces)
        groups.push_back({groups.size() < kMostPlaces ? place : "elsewhere", {}});
      group = groups.end() - 1;
    }
    group->second.push_back(rank.rank.value());
  }
  std::string text;
  for (const auto& [place, ranks] : groups)
    if (!ranks.empty())
      text += (text.empty() ? "" : "; ") + evidence::name_ranks(ranks) +
              (place.empty() ? "" : ", " + place);
  return text;
}

struct Finished {
  std::vector<evidence::FinishedRank> awaited;  ///< perhaps
  std::vector<evidence::FinishedRank> others;
};

// Where others went on for more than a time-out without one, they don't meet it in each step.
Finished split_finished(const std::vector<evidence::NodeEvidence>& nodes, bool does_any_wait,
                        Millis silent) {
  Finished found;
  for (const auto& node : nodes)
    for (const auto& one : node.finished)
      (does_any_wait && one.before <= 2 * silent ? found.awaited : found.others).push_back(one);
  return found;
}

}  // namespace

std::vector<evidence::RankSummary> ranks_of(const std::vector<evidence::NodeEvidence>& nodes) {
  std::vector<evidence::RankSummary> ranks;
  for (const auto& node : nodes)
    for (const auto& rank : node.ranks) ranks.push_back(rank.summary);
  std::ranges::sort(ranks, {}, &evidence::RankSummary::rank);
  return ranks;
}

std::string awaited_words(const std::vector<std::uint32_t>& starting,
                          const std::vector<std::uint32_t>& stuck) {
  std::string text;
  if (!starting.empty()) text = evidence::name_ranks(starting) + ", of which no heartbeat is known";
  if (stuck.empty()) return text;
  if (!text.empty()) text += ", or ";
  return text + evidence::name_ranks(stuck) +
         (stuck.size() > 1 ? ", which send heartbeats of one step each"
                           : ", which sends heartbeats of one step");
}

HangCause cause_of_hang(const std::vector<SilentRank>& silent, const std::vector<Rank>& ranks,
                        const std::vector<evidence::NodeEvidence>& nodes) {
  const auto all = ranks_of(nodes);
  const auto culprits = evidence::find_culprits(all);
  const auto& culprit = all.at(culprits.which.front());
  const auto here = std::ranges::find_if(silent, [&](const SilentRank& one) {
    return ranks.at(one.rank.value()) == culprit.rank;  // the names of nodes may be equal
  });
  const auto local = std::ranges::find(ranks, culprit.rank);
  const bool is_here = local != ranks.end();
  auto own = here != silent.end() ? *here : silent.empty() ? SilentRank{} : silent.front();
  if (here == silent.end()) own.is_successor = false;
  const auto worker =
      is_here ? LocalRank{static_cast<std::uint32_t>(local - ranks.begin())} : own.rank;
  const auto finished = split_finished(nodes, may_wait(culprit, culprits), own.silent);
  const auto awaited = evidence::finished_words(finished.awaited, ", which ");
  std::string text =
      silence_words(own, culprit, awaited.empty() ? "" : "may wait for " + awaited + ": ");
  if (!culprit.at.empty()) text += ", at " + culprit.at;
  if (!culprits.why.empty()) text += "; " + culprits.why;
  if (culprits.which.size() > 1) {
    text += "; likewise " + other_culprits(all, culprits);
    if (culprits.why.empty() && !culprit.is_overdue && awaited.empty())
      text += ": nothing tells them apart";
  }
  for (const auto i : culprits.not_waiting) {
    text += "; rank " + std::to_string(all[i].rank.value()) + " doesn't wait for it";
    if (!all[i].at.empty()) text += ", at " + all[i].at;
  }
  if (const auto words = evidence::unheard_words(all, culprits); !words.empty())
    text += "; " + words;
  if (const auto words = evidence::repeating_words(all, culprits); !words.empty())
    text += "; " + words;
  if (const auto words = evidence::finished_words(finished.others); !words.empty())
    text += "; " + words;
  if (!is_here)
    text = "hung: waits for rank " + std::to_string(culprit.rank.value()) + " on " + culprit.node +
           ", which " + text;
  return {worker, is_here, std::move(text)};
}

}  // namespace acc::agent
