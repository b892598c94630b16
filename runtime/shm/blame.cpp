#include "runtime/shm/blame.hpp"

#include "common/text.hpp"

#include <algorithm>

namespace acc::runtime::shm {
namespace {

using Source = RankStatus::Source;

const RankStatus& status_of(std::span<const RankStatus> all, int rank) {
  return all[static_cast<std::size_t>(rank)];
}

/// The ranks that `rank` waits for in `wait`.
std::vector<int> awaited(std::span<const RankStatus> all, const Wait& wait, int rank) {
  if (wait.operation == Operation::none) return {};
  if (!is_message(wait.operation)) {
    auto late = late_in(all, wait.of);
    std::erase(late, rank);
    return late;
  }
  if (wait.of >= all.size() || static_cast<int>(wait.of) == rank) return {};
  return {static_cast<int>(wait.of)};
}

std::vector<Waited> next(std::span<const RankStatus> all, int rank) {
  const auto& status = status_of(all, rank);
  if (status.source == Source::none && status.behind >= 0) return {{status.behind, rank, {}}};
  if (status.source != Source::rank || status.is_stopped) return {};
  std::vector<Waited> found;
  for (const auto& wait : status.waits)
    for (const int other : awaited(all, wait, rank)) found.push_back({other, rank, wait});
  return found;
}

/// All ranks that can be reached, each once, nearest first.
std::vector<Waited> reachable(std::span<const RankStatus> all, std::vector<Waited> from) {
  std::vector<bool> seen(all.size());
  std::vector<Waited> found;
  for (std::size_t done = 0;; ++done) {
    for (const auto& one : from) {
      if (seen[static_cast<std::size_t>(one.rank)]) continue;
      seen[static_cast<std::size_t>(one.rank)] = true;
      found.push_back(one);
    }
    if (done == found.size()) return found;
    from = next(all, found[done].rank);
  }
}

bool is_in_cycle(std::span<const RankStatus> all, int rank) {
  const auto onward = reachable(all, next(all, rank));
  return std::any_of(onward.begin(), onward.end(),
                     [&](const Waited& one) { return one.rank == rank; });
}

/// "recv from rank 2", "barrier #5 for ranks 0,3"; several are joined by "and in".
std::string waits_in(std::span<const RankStatus> all, int rank) {
  const auto& status = status_of(all, rank);
  std::vector<std::string> calls;
  for (const auto& wait : status.waits) {
    const auto others = awaited(all, wait, rank);
    if (others.empty()) continue;
    std::string text =
        is_message(wait.operation) ? std::string{to_string(wait.operation)} : status.collective;
    text += wait.operation == Operation::recv   ? " from "
            : wait.operation == Operation::send ? " to "
                                                : " for ";
    calls.push_back(text + describe_ranks(others));
  }
  return join(calls, " and in ");
}

/// What others miss of a rank: "rank 2 (host a, pid 7) has not sent to rank 1; it …"
std::string describe_culprit(const Waited& one, const RankStatus& status, const std::string& name) {
  if (status.source == Source::silent)
    return name + " doesn't answer: it is stopped, or its host is cut off";
  std::string text = name;
  const std::string whom = one.by < 0 ? "" : " rank " + std::to_string(one.by);
  if (one.in.operation == Operation::recv) {
    text += " has not sent" + (whom.empty() ? "" : " to" + whom);
  } else if (one.in.operation == Operation::send) {
    text += " has not received what" + (whom.empty() ? " was" : whom) + " sent before";
  } else if (status.has_arrived(one.in.of)) {
    text += " arrived, but makes no progress";
  } else {
    text += status.has_joined ? " has not arrived" : " has not joined";
  }
  return text + "; " + (status.last.empty() ? "nothing more is known of it" : status.last);
}

std::string describe_cycle(const Blame& found, std::span<const RankStatus> all,
                           const std::function<std::string(int)>& name) {
  std::vector<std::string> parts;
  for (const auto& one : found.culprits)
    parts.push_back(name(one.rank) + " in " + waits_in(all, one.rank));
  return describe_ranks(found.ranks()) + " wait for each other: " + join(parts, ", ");
}

}  // namespace

std::vector<int> late_in(std::span<const RankStatus> all, std::uint32_t number) {
  std::vector<int> absent, stopped, stuck;
  for (std::size_t r = 0; r < all.size(); ++r) {
    const auto& one = all[r];
    const int rank = static_cast<int>(r);
    if (one.source == Source::silent || (one.source == Source::rank && !one.has_arrived(number)))
      absent.push_back(rank);
    if (one.source != Source::rank || one.has_completed(number)) continue;
    if (one.is_stopped) stopped.push_back(rank);
    if (!one.is_waiting) stuck.push_back(rank);
  }
  if (!absent.empty()) return absent;
  // A rank stopped in its sleep seems to wait for another, and the ranks that wait for it may be
  // awake at the moment.
  return stopped.empty() ? stuck : stopped;
}

std::vector<int> Blame::ranks() const {
  std::vector<int> all;
  for (const auto& one : culprits) all.push_back(one.rank);
  return all;
}

Blame blame(std::span<const RankStatus> all, const Wait& mine, const std::vector<int>& first) {
  std::vector<Waited> from;
  for (const int rank : first) from.push_back({rank, -1, mine});
  Blame found;
  for (const auto& one : reachable(all, from))
    (next(all, one.rank).empty() ? found.culprits : found.between).push_back(one);
  if (found.culprits.empty() && !found.between.empty()) {
    found.is_cycle = true;
    const auto outside =
        std::stable_partition(found.between.begin(), found.between.end(),
                              [&](const Waited& one) { return is_in_cycle(all, one.rank); });
    found.culprits.assign(found.between.begin(), outside);
    found.between.erase(found.between.begin(), outside);
  }
  std::sort(found.culprits.begin(), found.culprits.end(),
            [](const Waited& a, const Waited& b) { return a.rank < b.rank; });
  return found;
}

std::string describe(const Blame& found, std::span<const RankStatus> all,
                     const std::function<std::string(int)>& name) {
  constexpr std::size_t kMostBetween = 16;
  std::vector<std::string> parts;
  if (found.is_cycle) {
    parts.push_back(describe_cycle(found, all, name));
  } else {
    for (const auto& one : found.culprits)
      parts.push_back(describe_culprit(one, status_of(all, one.rank), name(one.rank)));
  }
  std::string text = join(parts, ", ");
  for (std::size_t i = 0; i < found.between.size(); ++i) {
    if (i == kMostBetween)
      return text + "; " + std::to_string(found.between.size() - i) + " more wait themselves";
    const int rank = found.between[i].rank;
    text += status_of(all, rank).source == Source::none
                ? "; nothing is known of " + name(rank)
                : "; " + name(rank) + " itself waits in " + waits_in(all, rank);
  }
  return text;
}

}  // namespace acc::runtime::shm
