#include "agent/watch/suspects.hpp"

#include <algorithm>

namespace acc::agent {

namespace {

// An unknown heartbeat says nothing of a silence.
bool has_beaten_since(LocalRank rank, const std::vector<heartbeat::Beat>& then,
                      const std::vector<heartbeat::Beat>& now) {
  const auto at = rank.value();
  return at < now.size() && at < then.size() && now[at].time_ns != then[at].time_ns;
}

bool holds(const std::vector<LocalRank>& ranks, LocalRank rank) {
  return std::ranges::find(ranks, rank) != ranks.end();
}

}  // namespace

std::vector<SilentRank> Suspects::still_silent(const std::vector<heartbeat::Beat>& now) const {
  std::vector<SilentRank> found;
  const auto add = [&](const std::vector<SilentRank>& all) {
    std::ranges::copy_if(all, std::back_inserter(found), [&](const SilentRank& one) {
      return !has_beaten_since(one.rank, beats, now);
    });
  };
  add(silent);
  if (!found.empty()) add(nearly);
  return found;
}

bool Suspects::is_still_stuck(LocalRank rank, const std::vector<heartbeat::Beat>& now) const {
  const auto at = rank.value();
  if (!holds(stuck, rank) || at >= now.size() || at >= beats.size()) return false;
  return now[at].step == beats[at].step && now[at].section_since_ns == 0;
}

bool Suspects::has_gone_on(LocalRank rank, const std::vector<heartbeat::Beat>& now) const {
  const auto is_it = [&](const SilentRank& one) { return one.rank == rank; };
  const bool was_silent = std::ranges::any_of(silent, is_it) || std::ranges::any_of(nearly, is_it);
  if (was_silent && has_beaten_since(rank, beats, now)) return true;
  if (holds(stuck, rank) && !is_still_stuck(rank, now)) return true;
  const auto at = rank.value();
  return holds(starting, rank) && at < now.size() && now[at].beats >= heartbeat::kFirstBeats;
}

bool Suspects::is_one(LocalRank rank) const {
  const auto is_it = [&](const SilentRank& one) { return one.rank == rank; };
  return std::ranges::any_of(silent, is_it) || std::ranges::any_of(nearly, is_it) ||
         holds(stuck, rank) || holds(starting, rank);
}

bool Suspects::has_any_gone_on(const std::vector<heartbeat::Beat>& now,
                               const std::vector<bool>& lives) const {
  for (std::uint32_t i = 0; i < beats.size(); ++i) {
    const bool has_ended = i < lives.size() && !lives[i] && is_one(LocalRank{i});
    if (has_ended || has_gone_on(LocalRank{i}, now)) return true;
  }
  return false;
}

std::vector<LocalRank> starting_ranks(const std::vector<heartbeat::Beat>& beats,
                                      const std::vector<bool>& lives) {
  std::vector<LocalRank> found;
  for (std::uint32_t i = 0; i < std::min(beats.size(), lives.size()); ++i)
    if (lives[i] && beats[i].beats < heartbeat::kFirstBeats) found.emplace_back(i);
  return found;
}

}  // namespace acc::agent
