#include "common/exit_codes.hpp"
#include "common/text.hpp"
#include "rendezvous/membership.hpp"
#include "rendezvous/planted.hpp"

#include <algorithm>
#include <cctype>

// Assignment of ranks: when a round may be formed, from which nodes, in which order.
namespace acc::rendezvous {

namespace {

/// After the latest arrival, if fewer than the maximum joined: others may be a moment behind.
constexpr Millis kQuiet{1'000};
/// For members of the last round that are not known dead: spares must not take their places early.
constexpr Millis kLastCallForMembers{30'000};
constexpr Millis kNoticeEvery{30'000};
constexpr End kTooFew{Outcome::nodes_missing, to_int(ExitCode::nodes_missing)};

/// "localhost:29501", "127.0.0.1:29501", "[::1]:29501"
bool names_loopback(std::string_view where) {
  return where.starts_with("localhost:") || where.starts_with("127.") || where.starts_with("[::1]");
}

}  // namespace

void Membership::begin_gathering(Instant now) {
  given_up_.gathers(phase_ == MembershipPhase::assigning, now);
  phase_ = MembershipPhase::gathering;
  phase_since_ = now;
  next_notice_ = now + Millis{5'000};
  restart_is_asked_ = false;
}

std::vector<NodeIndex> Membership::assignable() const {
  std::vector<NodeIndex> present;
  present.reserve(nodes_.connected().size());
  for (const auto& [peer, index] : nodes_.connected()) {
    if (!nodes_[index].has_workers) present.push_back(index);
  }
  return present;
}

// A coordinator without history may be the second one of its job: workers of the first may live on
// under their leases, and a successor may exist that doesn't know this coordinator yet.
bool Membership::in_takeover_delay(Instant now) const {
  if (has_round_ || (!options_.is_restarted_seed && !heard_of_another_)) return false;
  return now < began_ + options_.timings.lease + options_.timings.heartbeat_timeout +
                   options_.timings.lease_slack();
}

// A member of the last round that is not connected and not known dead.
bool Membership::is_missing(const Place& place) const {
  return !place.gone && (place.node == kNoNode || !nodes_[place.node].peer);
}

// When a round with fewer than the maximum may begin; empty: there are too few nodes.
std::optional<Instant> Membership::last_call_end(std::size_t present) const {
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
  return std::max(nodes_.last_arrival(), phase_since_) + kQuiet;
}

// Empty: there may still be enough.
std::string Membership::why_too_few(Instant now) const {
  if (!options_.starts_no_node_again || options_.nodes_max == 0) return {};
  const auto words = departures_.final_ones(now);
  if (words.size() + options_.nodes_min <= options_.nodes_max) return {};
  return "too few nodes for another round, " + plural(options_.nodes_min, "node") +
         " needed: " + join(words, "; ") + "; nothing starts it again";
}

void Membership::consider_round(Instant now, MembershipActions& out) {
  if (phase_ != MembershipPhase::gathering) return;
  if (const auto why = why_too_few(now); !why.empty()) return close(kTooFew, why, now, out);
  const auto limit = options_.policy ? options_.policy->join_timeout : JobPolicy{}.join_timeout;
  const bool is_late = !nodes_.connected().empty() && now >= given_up_.since(phase_since_) + limit;
  if (nodes_.connected().size() < options_.nodes_min && !is_late) return;
  const auto present = assignable();
  const bool members_missing =
      std::ranges::any_of(places_, [&](const Place& place) { return is_missing(place); });
  const bool full = options_.nodes_max != 0 && present.size() >= options_.nodes_max;
  const auto end = last_call_end(present.size());
  const bool may_begin = (full && !members_missing) || (end && now >= *end);
  const bool is_in_vain = is_late && given_up_.any();
  // Without the majority of the last round another coordinator may be forming the next one.
  if (may_begin && !is_in_vain && authority_->may_act(now) && !in_takeover_delay(now)) {
    const auto order = order_nodes(candidates(present), options_.nodes_min, options_.nodes_max);
    if (keeps_quorum(order)) return assign(order, now, out);
  }
  if (!is_late) return;
  const bool is_enough = present.size() >= options_.nodes_min && keeps_quorum(present);
  auto why = is_in_vain && is_enough
                 ? given_up_.text(limit)
                 : too_few_text(present.size(), options_.nodes_min, has_round_, limit);
  close(kTooFew, std::move(why), now, out);
}

// Of the established round alone: one that was given up before all its members knew it elects
// nobody without a majority of the established one.
bool Membership::keeps_quorum(const std::vector<NodeIndex>& order) const {
  const auto kept = std::ranges::count_if(order, [&](NodeIndex index) {
    return places_.established_rank(nodes_[index].join.node.name).has_value();
  });
  return authority_->may_continue_with(static_cast<std::size_t>(kept), places_.established_size());
}

std::vector<Candidate> Membership::candidates(const std::vector<NodeIndex>& present) const {
  std::vector<Candidate> all;
  all.reserve(present.size());
  for (const NodeIndex index : present) {
    const auto& node = nodes_[index];
    all.push_back({index, &node.join, node.arrival, places_.rank_before(node.join.node.name)});
  }
  return all;
}

void Membership::assign(const std::vector<NodeIndex>& order, Instant now, MembershipActions& out) {
  if (has_round_) newest_heard_ = std::max(newest_heard_.value_or(Round{0}), epoch_.round);
  epoch_.round = newest_heard_ ? Round{newest_heard_->value() + 1} : Round{0};
  has_round_ = true;
  if (restart_is_due_) ++ledger_.restarts;
  restart_is_due_ = false;
  end_inquiries(out);
  places_.begin(epoch_);
  std::uint32_t next_rank = 0;
  for (std::size_t i = 0; i < order.size(); ++i) {
    const auto& node = nodes_[order[i]];
    Place place;
    place.node = order[i];
    place.id = node.join.node;
    place.ranks = {Rank{next_rank}, node.join.slots};
    place.heard = node.heard;
    const bool is_twice = planted::assign_rank_twice && i + 2 == order.size() && order.size() > 1;
    if (!is_twice) next_rank += place.ranks.count;
    places_.add(std::move(place));
  }
  ready_ = completed_ = 0;
  failures_.now.reset();
  failures_.progress = false;
  authority_->assigned(places_.size());
  recovering_until_.reset();
  phase_ = MembershipPhase::assigning;
  phase_since_ = now;
  standbys_ = choose_standbys();
  out.emplace_back(ResetStore{epoch_});
  for (std::size_t i = 0; i < places_.size(); ++i) send_assignment(i, now, out);
  tell_spares(out);
}

void Membership::send_assignment(std::size_t index, Instant now, MembershipActions& out) {
  const auto& place = places_[index];
  const auto& last = places_.back();
  Assigned assigned;
  assigned.stamp = stamp(now);
  assigned.node_rank = NodeRank{static_cast<std::uint32_t>(index)};
  assigned.nodes = static_cast<std::uint32_t>(places_.size());
  assigned.established = places_.established_before(place.id.name);
  assigned.first_rank = place.ranks.first;
  assigned.world_size = WorldSize{last.ranks.first.value() + last.ranks.count};
  assigned.ledger = ledger_;
  assigned.max_restarts = options_.policy->restart.max_restarts;
  assigned.reason = restart_reason_;
  assigned.standbys = standbys_;
  send(place.node, std::move(assigned), out);
}

// The agents that may take over, by rank; the coordinator's own node is excluded.
std::vector<Standby> Membership::choose_standbys() const {
  std::vector<Standby> list;
  for (std::size_t i = 0; i < places_.size() && list.size() < kMaxStandbys; ++i) {
    if (places_[i].node == kNoNode || places_[i].id.name == options_.name) continue;
    const auto& node = nodes_[places_[i].node];
    if (node.join.listens == 0) continue;
    const auto& host = node.join.address.empty() ? node.address : node.join.address;
    list.push_back(
        {places_[i].id.name, NodeRank{static_cast<std::uint32_t>(i)}, {host, node.join.listens}});
  }
  return list;
}

// Nodes without a place in the running round. Decided from the current state, not from the event
// that led to it: they joined before its Start, right after an election, or their workers of an
// older round have only now exited.
void Membership::consider_waiting(Instant now, MembershipActions& out) {
  if (phase_ != MembershipPhase::running || recovered_unconfirmed_) return;
  const auto& connected = nodes_.connected();
  const auto waiting = std::ranges::find_if(connected, [this](const auto& entry) {
    return !places_.of_node(entry.second) && !nodes_[entry.second].has_workers;
  });
  if (waiting == connected.end()) return;
  const bool has_room = places_.size() < options_.nodes_max;
  if (!has_room || !options_.policy->scale_up_now || is_recovering(now)) return tell_spares(out);
  tell_spares(out, "the job runs already: its workers stop now, to start again with this node's");
  const auto& name = nodes_[waiting->second].join.node.name;
  stop_round(Stop::Why::membership, "node " + name + " joined", now, out);
}

void Membership::tell_spares(MembershipActions& out, const std::string& words) {
  for (const auto& [peer, index] : nodes_.connected()) {
    auto& node = nodes_[index];
    if (places_.of_node(index) || node.has_workers) {
      node.told_spare = false;
      continue;
    }
    if (node.told_spare) continue;
    node.told_spare = true;
    Assigned assigned;
    assigned.spare = true;
    assigned.reason = words;
    assigned.standbys = standbys_;  // to contact if the coordinator is lost
    out.emplace_back(SendTo{peer, {epoch_, std::move(assigned)}});
  }
}

void Membership::tell_waiting(Instant now, MembershipActions& out) {
  if (now < next_notice_) return;
  next_notice_ = now + kNoticeEvery;
  if (nodes_.connected().empty()) return;
  const auto waited = std::chrono::duration_cast<Millis>(now - phase_since_);
  const auto limit = options_.policy ? options_.policy->join_timeout : JobPolicy{}.join_timeout;
  const auto present = assignable().size();
  const bool all_here = present >= options_.nodes_min;
  std::string text =
      (all_here ? "waiting at " : "waiting for other nodes at ") + options_.where + " for " +
      describe(Millis{waited / Millis{1'000} * 1'000}) + " (up to " + describe(limit) + "): " +
      (all_here ? plural(present, "node") + " here, enough for a round"
                : std::to_string(present) + " of " + plural(options_.nodes_min, "node") + " here");
  if (all_here && !keeps_quorum(assignable()))
    text += ", but too few of the last round: one that is missing must come back";
  std::vector<std::string> missing;
  constexpr std::uint32_t kNamed = 8;
  for (std::uint32_t rank = 0; rank < options_.nodes_min && missing.size() <= kNamed; ++rank) {
    const bool is_here = std::ranges::any_of(nodes_.connected(), [&](const auto& entry) {
      return nodes_[entry.second].join.wanted == NodeRank{rank};
    });
    if (!is_here) missing.push_back(std::to_string(rank));
  }
  const bool by_rank = std::ranges::any_of(nodes_.connected(), [&](const auto& entry) {
    return nodes_[entry.second].join.wanted.has_value();
  });
  if (by_rank && !options_.has_shared_rank && !missing.empty()) {
    if (missing.size() > kNamed) missing.back() = "…";
    text += ", not come: node rank " + join(missing, ", ");
  }
  if (!all_here && names_loopback(options_.where))
    text +=
        "; that is loopback: nodes on other machines need --main_process_ip or --rdzv_endpoint "
        "with "
        "an address of this machine that they reach";
  if (in_takeover_delay(now)) {
    text +=
        "; the last coordinator of this job ended without a word, and no round begins before the "
        "leases that it gave are over";
  }
  send_all(Notice{text}, out);
}

}  // namespace acc::rendezvous
