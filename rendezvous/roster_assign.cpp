#include "common/exit_codes.hpp"
#include "common/text.hpp"
#include "rendezvous/planted.hpp"
#include "rendezvous/roster.hpp"

#include <algorithm>
#include <cctype>

// How nodes get their ranks: when a round may be formed, of whom, in which order.
namespace acc::rendezvous {

namespace {

/// After the last newcomer, if less than the maximum are here: others may be a moment behind.
constexpr Millis kQuiet{1'000};
/// For members of the last round that are not known dead: spares must not overtake them.
constexpr Millis kLastCallForMembers{30'000};
constexpr Millis kNoticeEvery{30'000};

std::string count_text(std::size_t n, std::string_view thing) {
  return std::to_string(n) + " " + std::string{thing} + (n == 1 ? "" : "s");
}

}  // namespace

bool natural_less(std::string_view a, std::string_view b) {
  const auto is_digit = [](char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; };
  std::size_t i = 0;
  std::size_t j = 0;
  while (i < a.size() && j < b.size()) {
    if (!is_digit(a[i]) || !is_digit(b[j])) {
      if (a[i] != b[j]) return a[i] < b[j];
      ++i;
      ++j;
      continue;
    }
    const auto end_of_number = [&](std::string_view text, std::size_t at) {
      while (at < text.size() && is_digit(text[at])) ++at;
      return at;
    };
    const auto without_zeros = [](std::string_view digits) {
      return digits.substr(std::min(digits.find_first_not_of('0'), digits.size()));
    };
    const auto i_end = end_of_number(a, i);
    const auto j_end = end_of_number(b, j);
    const auto x = without_zeros(a.substr(i, i_end - i));
    const auto y = without_zeros(b.substr(j, j_end - j));
    if (x.size() != y.size()) return x.size() < y.size();
    if (x != y) return x < y;
    i = i_end;
    j = j_end;
  }
  if (a.size() - i != b.size() - j) return a.size() - i < b.size() - j;
  return a < b;  // node01 and node1 are two hosts
}

void Roster::begin_gathering(Instant now) {
  phase_ = RosterPhase::gathering;
  phase_since_ = now;
  next_notice_ = now + Millis{5'000};
}

std::vector<Roster::NodeIndex> Roster::assignable() const {
  std::vector<NodeIndex> present;
  present.reserve(by_peer_.size());
  for (const auto& [peer, index] : by_peer_) {
    if (!nodes_[index]->has_workers) present.push_back(index);
  }
  return present;
}

// A coordinator that begins with nothing may be the second one of its job: workers of the first may
// live by their leases, and a successor may be in office who doesn't know yet that we are here.
bool Roster::must_hold_off(Instant now) const {
  if (has_round_ || (!options_.is_second && !heard_of_another_)) return false;
  return now < began_ + options_.timings.lease + options_.timings.dead + lease_slack();
}

// A member of the last round that isn't here, and that nobody knows to be dead.
bool Roster::is_missing(const Place& place) const {
  return !place.gone && (place.node == kNobody || !nodes_[place.node]->peer);
}

// When a round with fewer than the maximum may begin; empty: there are too few.
std::optional<Instant> Roster::last_call_end(std::size_t present) const {
  if (options_.nodes_max == 0 || present < options_.nodes_min) return std::nullopt;
  if (options_.policy && options_.policy->last_call)
    return phase_since_ + *options_.policy->last_call;
  std::size_t missing = 0;
  std::size_t lost = 0;
  for (const auto& place : places_) {
    missing += is_missing(place) ? 1 : 0;
    lost += place.gone ? 1 : 0;
  }
  if (missing > 0) return phase_since_ + kLastCallForMembers;
  const bool all_are_back = has_round_ && lost == 0;
  if (all_are_back) return phase_since_;
  return std::max(last_arrival_, phase_since_) + kQuiet;
}

void Roster::consider_round(Instant now, RosterActions& out) {
  if (phase_ != RosterPhase::gathering) return;
  const auto limit = options_.policy ? options_.policy->join_timeout : JobPolicy{}.join_timeout;
  const bool is_late = now >= phase_since_ + limit && !by_peer_.empty();
  if (by_peer_.size() < options_.nodes_min && !is_late) return;
  auto present = assignable();
  const bool members_missing =
      std::ranges::any_of(places_, [&](const Place& place) { return is_missing(place); });
  const bool full = options_.nodes_max != 0 && present.size() >= options_.nodes_max;
  const auto end = last_call_end(present.size());
  const bool may_begin = (full && !members_missing) || (end && now >= *end);
  // Without the majority of the last round somebody else may be forming the next one.
  if (may_begin && has_authority(now) && !must_hold_off(now)) {
    const auto order = choose(std::move(present));
    if (keeps_quorum(order)) return assign(order, now, out);
  }
  if (!is_late) return;
  close(Outcome::nodes_missing, to_int(ExitCode::nodes_missing),
        "only " + std::to_string(assignable().size()) + " of " +
            count_text(options_.nodes_min, "node") +
            (has_round_ ? " came back within " : " came within ") + describe(limit),
        now, out);
}

// So many of the last round go on that the rest of it can't elect somebody who doesn't know of this
// one: whoever asks a majority of them meets a node of the new round.
bool Roster::keeps_quorum(const std::vector<NodeIndex>& order) const {
  if (places_.empty() || options_.has_witness || planted::elect_without_majority) return true;
  const auto kept = std::ranges::count_if(order, [&](NodeIndex index) {
    return place_by_name_.contains(nodes_[index]->join.node.name);
  });
  return kept >= quorum_of(static_cast<std::uint32_t>(places_.size()));
}

// The nodes of the round, by node rank.
std::vector<Roster::NodeIndex> Roster::choose(std::vector<NodeIndex> present) const {
  constexpr std::size_t kNoPlace = static_cast<std::size_t>(-1);
  const auto rank_before = [&](NodeIndex index) {
    const auto found = place_by_name_.find(nodes_[index]->join.node.name);
    return found != place_by_name_.end() ? found->second : kNoPlace;
  };
  // Members before newcomers, then whoever came first.
  std::ranges::sort(present, [&](NodeIndex a, NodeIndex b) {
    const auto x = std::pair{rank_before(a), nodes_[a]->arrival};
    return x < std::pair{rank_before(b), nodes_[b]->arrival};
  });
  const auto size = std::min<std::size_t>(present.size(), options_.nodes_max);
  present.resize(size);

  std::vector<NodeIndex> order(size, kNobody);
  std::vector<NodeIndex> others;
  const bool is_static = options_.nodes_min == options_.nodes_max;
  for (const NodeIndex index : present) {
    const auto& wanted = nodes_[index]->join.wanted;
    const auto rank = is_static && wanted ? wanted->value() : rank_before(index);
    if (rank < size && order[rank] == kNobody) {
      order[rank] = index;
    } else {
      others.push_back(index);
    }
  }
  std::ranges::sort(others, [&](NodeIndex a, NodeIndex b) {
    const auto& x = nodes_[a]->join;
    const auto& y = nodes_[b]->join;
    if (rank_before(a) != rank_before(b)) return rank_before(a) < rank_before(b);
    if (x.wanted.has_value() != y.wanted.has_value()) return x.wanted.has_value();
    if (x.wanted != y.wanted) return x.wanted < y.wanted;
    if (x.host != y.host) return natural_less(x.host, y.host);
    return natural_less(x.node.name, y.node.name);
  });
  auto next = others.begin();
  for (auto& place : order) {
    if (place == kNobody) place = *next++;
  }
  return order;
}

void Roster::assign(const std::vector<NodeIndex>& order, Instant now, RosterActions& out) {
  if (has_round_) newest_heard_ = std::max(newest_heard_.value_or(Round{0}), epoch_.round);
  epoch_.round = newest_heard_ ? Round{newest_heard_->value() + 1} : Round{0};
  has_round_ = true;
  if (restart_is_due_) ++ledger_.restarts;
  restart_is_due_ = false;
  end_inquiries(out);
  places_.clear();
  place_by_node_.clear();
  place_by_name_.clear();
  std::uint32_t next_rank = 0;
  for (std::size_t i = 0; i < order.size(); ++i) {
    const auto& node = *nodes_[order[i]];
    Place place;
    place.node = order[i];
    place.name = node.join.node.name;
    place.incarnation = node.join.node.incarnation;
    place.first = Rank{next_rank};
    place.slots = node.join.slots;
    place.heard = node.heard;
    place_by_node_[order[i]] = i;
    place_by_name_[place.name] = i;
    const bool is_twice = planted::assign_rank_twice && i + 2 == order.size() && order.size() > 1;
    if (!is_twice) next_rank += place.slots;
    places_.push_back(std::move(place));
  }
  ready_ = completed_ = 0;
  failure_.reset();
  progress_ = false;
  membership_change_ = false;
  quorum_cache_.reset();
  recovering_until_.reset();
  is_confirmed_ = true;  // this round needs a word of each of its members anyway
  phase_ = RosterPhase::assigning;
  phase_since_ = now;
  standbys_ = choose_standbys();
  out.emplace_back(ResetStore{epoch_});
  for (std::size_t i = 0; i < places_.size(); ++i) send_assignment(i, now, out);
  tell_spares(out);
}

void Roster::send_assignment(std::size_t index, Instant now, RosterActions& out) {
  const auto& place = places_[index];
  const auto& last = places_.back();
  Assigned assigned;
  assigned.stamp = stamp(now);
  assigned.node_rank = NodeRank{static_cast<std::uint32_t>(index)};
  assigned.nodes = static_cast<std::uint32_t>(places_.size());
  assigned.first_rank = place.first;
  assigned.world_size = WorldSize{last.first.value() + last.slots};
  assigned.ledger = ledger_;
  assigned.reason = restart_reason_;
  assigned.standbys = standbys_;
  send(*nodes_[place.node], std::move(assigned), out);
}

// The agents that may take over, by rank; the coordinator's own node can't.
std::vector<Standby> Roster::choose_standbys() const {
  std::vector<Standby> list;
  for (std::size_t i = 0; i < places_.size() && list.size() < kMaxStandbys; ++i) {
    if (places_[i].node == kNobody || places_[i].name == options_.name) continue;
    const auto& node = *nodes_[places_[i].node];
    if (node.join.listens == 0) continue;
    const auto& host = node.join.address.empty() ? node.address : node.join.address;
    list.push_back(
        {places_[i].name, NodeRank{static_cast<std::uint32_t>(i)}, {host, node.join.listens}});
  }
  return list;
}

void Roster::tell_spares(RosterActions& out, const std::string& words) {
  for (const auto& [peer, index] : by_peer_) {
    auto& node = *nodes_[index];
    if (place_of(index) || node.has_workers) {
      node.told_spare = false;
      continue;
    }
    if (node.told_spare) continue;
    node.told_spare = true;
    Assigned assigned;
    assigned.spare = true;
    assigned.reason = words;
    assigned.standbys = standbys_;  // whom to ask when the coordinator is gone
    out.emplace_back(SendTo{peer, {epoch_, std::move(assigned)}});
  }
}

void Roster::tell_waiting(Instant now, RosterActions& out) {
  if (now < next_notice_) return;
  next_notice_ = now + kNoticeEvery;
  if (by_peer_.empty()) return;
  const auto waited = std::chrono::duration_cast<Millis>(now - phase_since_);
  const auto limit = options_.policy ? options_.policy->join_timeout : JobPolicy{}.join_timeout;
  const auto present = assignable().size();
  const bool all_here = present >= options_.nodes_min;
  std::string text =
      (all_here ? "waiting at " : "waiting for other nodes at ") + options_.where + " for " +
      describe(Millis{waited / Millis{1'000} * 1'000}) + " (up to " + describe(limit) + "): " +
      (all_here
           ? count_text(present, "node") + " here, enough for a round"
           : std::to_string(present) + " of " + count_text(options_.nodes_min, "node") + " here");
  std::vector<std::string> missing;
  constexpr std::uint32_t kNamed = 8;
  for (std::uint32_t rank = 0; rank < options_.nodes_min && missing.size() <= kNamed; ++rank) {
    const bool is_here = std::ranges::any_of(by_peer_, [&](const auto& entry) {
      return nodes_[entry.second]->join.wanted == NodeRank{rank};
    });
    if (!is_here) missing.push_back(std::to_string(rank));
  }
  const bool by_rank = std::ranges::any_of(
      by_peer_, [&](const auto& entry) { return nodes_[entry.second]->join.wanted.has_value(); });
  if (by_rank && !missing.empty()) {
    if (missing.size() > kNamed) missing.back() = "…";
    text += ", not come: node rank " + join(missing, ", ");
  }
  if (must_hold_off(now)) {
    text +=
        "; the last coordinator of this job ended without a word, and no round begins before the "
        "leases that it gave are over";
  }
  send_all(Notice{text}, out);
}

}  // namespace acc::rendezvous
