#include "agent/evidence/culprits.hpp"

#include "common/duration.hpp"

#include <algorithm>
#include <functional>
#include <iterator>
#include <map>
#include <numeric>
#include <optional>

namespace acc::agent::evidence {

namespace {

using Indices = std::vector<std::size_t>;

class Comparison {
 public:
  explicit Comparison(const std::vector<RankSummary>& ranks) : ranks_{ranks} {
    for (std::size_t i = 0; i < ranks.size(); ++i)
      if (ranks[i].is_silent) silent_.push_back(i);
    if (silent_.empty()) {
      silent_.resize(ranks.size());
      std::iota(silent_.begin(), silent_.end(), std::size_t{0});
      return;
    }
    for (std::size_t i = 0; i < ranks.size(); ++i)
      if (!ranks[i].is_silent && ranks[i].is_starting) starting_.push_back(i);
  }

  Culprits judge() const {
    if (auto found = stopped()) return *found;
    if (auto found = lagging()) return *found;
    if (auto found = missing_in_collective()) return *found;
    if (auto found = not_waiting()) return *found;
    if (auto found = starting()) return *found;
    if (auto found = overdue_in_section()) return *found;
    if (auto found = fewest_steps()) return *found;
    if (auto found = odd_stack()) return *found;
    return {silent_, {}};
  }

 private:
  /// Those that it is true of, if it isn't true of all.
  Indices some(const std::function<bool(const RankSummary&)>& is_one) const {
    Indices found;
    for (const auto i : silent_)
      if (is_one(ranks_[i])) found.push_back(i);
    return found.size() < silent_.size() ? found : Indices{};
  }
  std::string others_than(const Indices& found) const {
    std::vector<std::uint32_t> others;
    for (const auto i : silent_)
      if (std::ranges::find(found, i) == found.end()) others.push_back(ranks_[i].rank.value());
    for (const auto i : starting_)
      if (waits(ranks_[i]).value_or(false) && std::ranges::find(found, i) == found.end())
        others.push_back(ranks_[i].rank.value());
    return wait_words(std::move(others));
  }
  static std::string wait_words(std::vector<std::uint32_t> ranks) {
    const bool is_one = ranks.size() == 1;
    return name_ranks(std::move(ranks)) + (is_one ? " waits" : " wait");
  }

  std::optional<Culprits> stopped() const {
    for (const char state : {'T', 't', 'D'}) {
      const auto is_one = [&](const RankSummary& r) { return r.state == state; };
      Indices found = some(is_one);
      if (found.empty() && state != 'D' &&
          std::ranges::all_of(silent_, [&](auto i) { return is_one(ranks_[i]); }))
        found = silent_;
      // While it starts a rank may read from a disk at any moment.
      if (state != 'D')
        std::ranges::copy_if(starting_, std::back_inserter(found),
                             [&](auto i) { return is_one(ranks_[i]); });
      if (found.empty()) continue;
      return Culprits{found, why_stopped(ranks_[found.front()]), not_waiting_besides(found)};
    }
    return std::nullopt;
  }
  static std::string why_stopped(const RankSummary& rank) {
    if (rank.state == 'D') return "it is in the kernel and can't be interrupted (state D)";
    if (rank.state == 'T') return "it was stopped by a signal (state T)";
    return "it is held by " + debugger_of(rank);
  }

  // When the stopped one goes on the others still wait for these.
  Indices not_waiting_besides(const Indices& found) const {
    const auto is_in = [&](std::size_t i) { return std::ranges::find(found, i) != found.end(); };
    if (std::ranges::none_of(silent_, [&](auto i) { return waits(ranks_[i]).value_or(false); }))
      return {};
    Indices others;
    for (const auto& looked_at : {silent_, starting_}) {
      std::ranges::copy_if(looked_at, std::back_inserter(others),
                           [&](auto i) { return !is_in(i) && !waits(ranks_[i]).value_or(true); });
    }
    return others;
  }
  // Not silent: it tries something again and again. A thread that only sends heartbeats, while the
  // program waits, looks the same, but for the stack. So does a rank a step ahead, as the heartbeat
  // of a step may be sent at its end: one that tries again in the next step has no later one.
  std::optional<Culprits> lagging() const {
    std::uint64_t fewest = UINT64_MAX;
    std::size_t known_to_wait = 0;
    bool is_any_overdue = false;
    for (const auto i : silent_) {
      const auto& rank = ranks_[i];
      fewest = std::min(fewest, steps_of(rank));
      is_any_overdue = is_any_overdue || rank.is_overdue;
      if (waits(rank).value_or(false)) ++known_to_wait;
      if (!waits(rank).value_or(true)) return std::nullopt;  // it may be the cause itself
    }
    Indices found;
    bool are_others_silent = true;
    bool is_any_behind = false;
    for (std::size_t i = 0; i < ranks_.size(); ++i) {
      const auto& rank = ranks_[i];
      if (std::ranges::find(silent_, i) != silent_.end()) continue;
      if (rank.is_starting && waits(rank).value_or(false)) continue;
      const bool is_next =
          steps_of(rank) == fewest + 1 && known_to_wait > 0 && !waits(rank).value_or(true);
      if (!rank.is_stuck || (steps_of(rank) > fewest && !is_next) || waits(rank).value_or(false)) {
        are_others_silent = false;
        continue;
      }
      is_any_behind = is_any_behind || steps_of(rank) < fewest;
      found.push_back(i);
    }
    // At the same step either may wait for the other one, if no stack tells.
    const bool is_clear = known_to_wait > 0 || is_any_behind || silent_.size() > found.size();
    if (found.empty() || !is_clear || (!is_any_behind && !are_others_silent) ||
        (is_any_overdue && known_to_wait == 0))
      return std::nullopt;
    if (is_any_behind)
      std::erase_if(found, [&](std::size_t i) { return steps_of(ranks_[i]) >= fewest; });
    return Culprits{found, others_than(found) + " for it"};
  }

  static std::uint64_t steps_of(const RankSummary& rank) {
    return rank.has_beaten ? rank.step + 1 : 0;
  }

  std::optional<Culprits> overdue_in_section() const {
    std::uint64_t fewest = UINT64_MAX;
    for (const auto i : silent_) fewest = std::min(fewest, steps_of(ranks_[i]));
    // One that is at an earlier step, and in no section, is waited for by that in the section.
    auto found = some([&](const RankSummary& r) { return r.is_overdue && steps_of(r) == fewest; });
    if (found.empty()) return std::nullopt;
    return Culprits{found, {}};
  }

  std::optional<Culprits> missing_in_collective() const {
    std::uint64_t latest = 0;
    const RankSummary* inside = nullptr;
    for (const auto i : silent_) {
      const auto& rank = ranks_[i];
      if (!rank.is_inside || rank.collectives < latest) continue;
      latest = rank.collectives;
      inside = &rank;
    }
    if (inside == nullptr) return std::nullopt;
    auto found = some([&](const RankSummary& r) {
      return r.collectives < latest || (r.collectives == latest && !r.is_inside);
    });
    // One that has never entered any may not be meant to.
    std::ranges::copy_if(starting_, std::back_inserter(found), [&](auto i) {
      const auto& r = ranks_[i];
      return r.collectives > 0 &&
             (r.collectives < latest || (r.collectives == latest && !r.is_inside));
    });
    if (found.empty()) return std::nullopt;
    const auto waiting = remove_waiting(found);
    std::vector<std::uint32_t> named;
    for (const auto i : waiting) named.push_back(ranks_[i].rank.value());
    auto all = found;
    std::ranges::copy(waiting, std::back_inserter(all));
    const auto what = inside->operation + " #" + std::to_string(latest);
    return Culprits{found, "it hasn't entered " + what + ", in which " + others_than(all) +
                               (named.empty() ? "" : "; " + wait_words(named) + " as well")};
  }

  // In a group of some ranks, or for a message of one, a rank waits for another that is missing: as
  // long as any is missing that isn't known to wait.
  Indices remove_waiting(Indices& found) const {
    Indices waiting;
    std::ranges::copy_if(found, std::back_inserter(waiting),
                         [&](auto i) { return ranks_[i].waits_for_others.value_or(false); });
    if (waiting.size() == found.size()) return {};
    std::erase_if(found, [&](auto i) { return ranks_[i].waits_for_others.value_or(false); });
    return waiting;
  }

  std::optional<Culprits> not_waiting() const {
    const bool any_waits = std::ranges::any_of(
        silent_, [&](auto i) { return ranks_[i].waits_for_others.value_or(false); });
    if (!any_waits) return std::nullopt;
    // One whose stack isn't known is taken for one that waits: most do.
    auto found = some([](const RankSummary& r) { return !r.waits_for_others.value_or(true); });
    if (found.empty()) return std::nullopt;
    return Culprits{found, others_than(found) + " for it"};
  }

  // What it does may be a long first step, or work of a rank that sends no heartbeats: a silent rank
  // that doesn't wait for it is the likelier cause.
  std::optional<Culprits> starting() const {
    std::size_t waiting = 0;
    for (const auto i : silent_) {
      const auto& rank = ranks_[i];
      if (!waits(rank).value_or(!rank.is_overdue)) return std::nullopt;
      if (waits(rank)) ++waiting;
    }
    Indices found;
    std::ranges::copy_if(starting_, std::back_inserter(found),
                         [&](auto i) { return !waits(ranks_[i]).value_or(true); });
    if (found.empty() || waiting == 0) return std::nullopt;
    return Culprits{found, others_than(found) + " for it"};
  }

  std::optional<Culprits> fewest_steps() const {
    std::uint64_t fewest = UINT64_MAX;
    std::uint64_t most = 0;
    for (const auto i : silent_) {
      fewest = std::min(fewest, steps_of(ranks_[i]));
      most = std::max(most, steps_of(ranks_[i]));
    }
    auto found = some([&](const RankSummary& r) { return steps_of(r) == fewest; });
    if (found.empty()) return std::nullopt;
    return Culprits{found, "others are at step " + std::to_string(most - 1)};
  }

  std::optional<Culprits> odd_stack() const {
    std::map<std::string, Indices> groups;
    for (const auto i : silent_) {
      if (ranks_[i].stack_key.empty()) return std::nullopt;
      groups[ranks_[i].stack_key].push_back(i);
    }
    const auto by_size = [](const auto& a, const auto& b) {
      return a.second.size() < b.second.size();
    };
    const auto& smallest = std::ranges::min_element(groups, by_size)->second;
    const auto as_small = std::ranges::count_if(
        groups, [&](const auto& group) { return group.second.size() == smallest.size(); });
    if (groups.size() < 2 || as_small > 1 || 2 * smallest.size() >= silent_.size())
      return std::nullopt;
    return Culprits{smallest, "it is elsewhere than most other ranks"};
  }

  const std::vector<RankSummary>& ranks_;
  Indices silent_;
  Indices starting_;  ///< not silent
};

}  // namespace

std::string debugger_of(const RankSummary& rank) {
  return "a debugger" + (rank.tracer.empty() ? "" : ", " + rank.tracer);
}

// A stack that isn't known says nothing; a collective of our runtime does.
std::optional<bool> waits(const RankSummary& rank) {
  return rank.is_inside ? true : rank.waits_for_others;
}

std::string unheard_words(const std::vector<RankSummary>& ranks, const Culprits& culprits) {
  std::vector<std::uint32_t> all;
  std::vector<std::uint32_t> unknown;
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    const auto& rank = ranks[i];
    const bool is_named = std::ranges::find(culprits.which, i) != culprits.which.end();
    if (rank.is_silent || rank.has_beaten || !rank.is_starting || is_named) continue;
    all.push_back(rank.rank.value());
    if (!waits(rank)) unknown.push_back(rank.rank.value());
  }
  if (all.empty()) return {};
  const auto& first = ranks[culprits.which.front()];
  const bool may_wait = first.is_silent && waits(first).value_or(true) && !unknown.empty();
  const auto words = name_ranks(may_wait ? unknown : all) + " sent no heartbeat in this attempt";
  if (!may_wait) return words;
  return words + ", so rank " + std::to_string(first.rank.value()) + " may wait for " +
         (unknown.size() > 1 ? "one of them" : "it");
}

std::string repeating_words(const std::vector<RankSummary>& ranks, const Culprits& culprits) {
  std::vector<std::uint32_t> found;
  std::uint64_t step = 0;
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    const auto& rank = ranks[i];
    const bool is_named = std::ranges::find(culprits.which, i) != culprits.which.end();
    if (rank.is_silent || !rank.is_stuck || is_named || waits(rank).value_or(false)) continue;
    found.push_back(rank.rank.value());
    step = rank.step;
  }
  if (found.empty()) return {};
  if (found.size() > 1)
    return name_ranks(std::move(found)) + " send heartbeats, but of one step each";
  return name_ranks(std::move(found)) + " sends heartbeats, but only of step " +
         std::to_string(step);
}

std::string finished_words(const std::vector<FinishedRank>& finished, std::string_view link) {
  if (finished.empty()) return {};
  std::vector<std::uint32_t> ranks;
  for (const auto& one : finished) ranks.push_back(one.rank.value());
  const auto last = std::ranges::min(finished, {}, &FinishedRank::before).before;
  return name_ranks(std::move(ranks)) + std::string{link} + "had finished (exit code 0" +
         (finished.size() > 1 ? "), the last of them " : ") ") + describe(last) + " before";
}

std::vector<std::string> behind_lines(const std::vector<RankSummary>& ranks) {
  if (std::ranges::none_of(ranks, &RankSummary::is_silent)) return {};
  const auto culprits = find_culprits(ranks);
  const auto unheard = unheard_words(ranks, culprits);
  std::vector<std::string> lines;
  const auto add = [&](std::size_t i, const std::string& why) {
    lines.push_back("behind the others: rank " + std::to_string(ranks[i].rank.value()) +
                    (ranks[i].at.empty() ? "" : ", at " + ranks[i].at) +
                    (why.empty() ? "" : ": " + why));
  };
  const bool is_clear = !culprits.why.empty() || unheard.empty();
  if (is_clear && culprits.which.size() < ranks.size())
    for (const auto i : culprits.which) add(i, culprits.why);
  for (const auto i : culprits.not_waiting)
    add(i, "it doesn't wait for rank " +
               std::to_string(ranks[culprits.which.front()].rank.value()));
  if (!unheard.empty()) lines.push_back(unheard);
  if (auto words = repeating_words(ranks, culprits); !words.empty())
    lines.push_back(std::move(words));
  return lines;
}

Culprits find_culprits(const std::vector<RankSummary>& ranks) {
  if (ranks.empty()) return {};
  return Comparison{ranks}.judge();
}

std::string describe_ranks(std::vector<std::uint32_t> ranks) {
  std::ranges::sort(ranks);
  std::string text;
  for (std::size_t i = 0; i < ranks.size();) {
    std::size_t last = i;
    while (last + 1 < ranks.size() && ranks[last + 1] == ranks[last] + 1) ++last;
    if (!text.empty()) text += ',';
    text += std::to_string(ranks[i]);
    if (last > i) text += (last == i + 1 ? "," : "-") + std::to_string(ranks[last]);
    i = last + 1;
  }
  return text;
}

std::string name_ranks(std::vector<std::uint32_t> ranks) {
  const bool is_one = ranks.size() == 1;
  return (is_one ? "rank " : "ranks ") + describe_ranks(std::move(ranks));
}

}  // namespace acc::agent::evidence
