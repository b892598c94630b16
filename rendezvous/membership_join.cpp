#include "common/text.hpp"
#include "rendezvous/membership.hpp"

#include <algorithm>

// Joining: which agents are admitted, and how returning ones are handled.
namespace acc::rendezvous {

namespace {

bool still_has_workers(const Join& join) { return join.state == NodeState::running; }

}  // namespace

MembershipActions Membership::joined(PeerId peer, const Join& join, const std::string& address,
                                     Instant now) {
  MembershipActions out;
  const Arrival arrival{peer, join, address, now};
  // In this order: the first guard that answers ends the evaluation.
  const bool is_answered = phase_ == MembershipPhase::stepped_down ||
                           reject_stranger(arrival, out) || repeat_close(arrival, out) ||
                           reject_as_deposed(arrival, out) || count_as_vote(arrival, out) ||
                           yield_to_newer(arrival, out) || reject_duplicate(arrival, out);
  if (!is_answered) admit(arrival, out);
  return out;
}

bool Membership::reject_stranger(const Arrival& a, MembershipActions& out) {
  auto objection = rendezvous::objection(options_, a.join);
  if (!objection) return false;
  refuse(a.peer, std::move(*objection), out);
  return true;
}

// The agent lost its connection just as the job ended.
bool Membership::repeat_close(const Arrival& a, MembershipActions& out) {
  if (!over_) return false;
  out.emplace_back(SendTo{a.peer, {epoch_, *over_}});
  out.emplace_back(ClosePeer{a.peer});
  return true;
}

bool Membership::reject_as_deposed(const Arrival& a, MembershipActions& out) {
  if (authority_->may_speak(a.now)) return false;
  refuse(a.peer,
         {Refusal::not_coordinator,
          "node " + options_.name + " is no longer the coordinator",
          {},
          false},
         out);
  return true;
}

// An agent that had a place, while this coordinator knows of no round: its Join counts as a vote to
// take over the state that the agents still hold.
bool Membership::count_as_vote(const Arrival& a, MembershipActions& out) {
  const auto& join = a.join;
  const bool has_history = join.epoch.term.number > 0;
  // With etcd every round that may have started is known, unless etcd lost its data.
  const bool knows_another =
      options_.external_leader ? join.state > NodeState::assigned : join.vote.number > 0;
  heard_of_another_ = heard_of_another_ || (!has_round_ && knows_another);
  if (has_history || join.vote.number > 0)
    newest_heard_ = std::max(newest_heard_.value_or(Round{0}), join.epoch.round);
  if (!has_history || has_round_ || options_.external_leader) return false;
  votes_.add({a.peer, join, a.address});
  if (const auto result = votes_.result(0)) {
    votes_.clear();
    take_over(*result, a.now, out);
  }
  return true;
}

bool Membership::yield_to_newer(const Arrival& a, MembershipActions& out) {
  if (a.join.vote <= epoch_.term) return false;
  const std::string term = std::to_string(a.join.vote.number);
  refuse(a.peer,
         {Refusal::stale,
          "a newer coordinator was elected: term " + term + ", here " +
              std::to_string(epoch_.term.number),
          {},
          false},
         out);
  step_down("another coordinator was elected meanwhile (term " + term + ")", out);
  return true;
}

bool Membership::reject_duplicate(const Arrival& a, MembershipActions& out) {
  auto found = duplicate(options_, nodes_, a.join, a.address, options_.timings, a.now);
  if (!found) return false;
  bool is_told = !found->is_renamed;
  // Started again at once, an agent may come before the last one of its node has ended.
  if (found->predecessor) {
    auto& challenge = nodes_[*found->predecessor].challenge;
    const auto incarnation = a.join.node.incarnation;
    if (!challenge || challenge->incarnation != incarnation) challenge = {incarnation, a.now};
    const auto patience =
        options_.timings.lease + (options_.policy ? options_.policy->grace : Millis{0});
    found->refused.for_ever = a.now - challenge->since > patience;
    is_told = is_told && found->refused.for_ever;
  }
  refuse(a.peer, std::move(found->refused), out, is_told);
  return true;
}

void Membership::admit(const Arrival& a, MembershipActions& out) {
  const auto& join = a.join;
  learn(options_, join);
  if (!options_.policy) options_.policy = join.policy.value_or(JobPolicy{});
  recovered_unconfirmed_ = recovered_unconfirmed_ && !knows_the_job(join);
  // While no agent was connected, none was waiting.
  if (nodes_.connected().empty() && phase_ == MembershipPhase::gathering) begin_gathering(a.now);
  bool is_new = join.epoch.term.number == 0;
  if (const auto known = nodes_.by_name(join.node.name)) {
    const auto& node = nodes_[*known];
    if (node.peer) out.emplace_back(ClosePeer{*node.peer});
    is_new = is_new && node.join.node.incarnation != join.node.incarnation;
  }
  if (auto shared = take_shared_rank(options_, nodes_, join))
    out.emplace_back(TellHere{std::move(*shared), true});
  const NodeIndex index = enter(a);
  welcome(index, a.now, out);
  if (is_new) tell_difference(index, out);
  if (return_to_place(index, a.now, out)) return;
  if (still_has_workers(join)) stop_stale(index, out);
  if (const auto rank = places_.of_name(join.node.name)) {
    const auto& place = places_[*rank];
    const bool is_other_agent = place.id.incarnation != join.node.incarnation;
    if (is_other_agent && is_in_round() && !place.gone)
      mark_lost(*rank, "its agent was started again", a.now, out);
  }
  if (recovered_unconfirmed_) send(index, Notice{doubt()}, out);
  consider_waiting(a.now, out);
  consider_round(a.now, out);
}

// @return whether the node continues as a member of the round
bool Membership::return_to_place(NodeIndex index, Instant now, MembershipActions& out) {
  const auto& join = nodes_[index].join;
  const bool has_history = join.epoch.term.number > 0;
  const bool same_round = has_history && join.epoch == places_.epoch();  // two may share a number
  if (same_round) name_place(join);
  const auto rank = places_.of_name(join.node.name);
  if (!rank) return false;
  auto& place = places_[*rank];
  if (place.id.incarnation != join.node.incarnation) return false;
  // With etcd: it was assigned to a later round that was never committed, so it is done with this
  // one.
  const bool is_past_it = options_.external_leader && !still_has_workers(join) && has_history &&
                          join.epoch.round > epoch_.round;
  if ((same_round || is_past_it) && is_in_round() && !place.gone) {
    reattach(index, NodeRank{static_cast<std::uint32_t>(*rank)}, now, out);
    return true;
  }
  // Until it has its place again, it neither counts as back nor confirms that this coordinator is
  // followed: it may know a later round by now.
  if (!same_round) places_.vacate(index);
  if (same_round && !is_in_round() && !place.gone) take_place(index, *rank, now);
  if (same_round && !still_has_workers(join) && phase_ == MembershipPhase::stopping)
    place.state = NodeState::stopped;
  return false;
}

// Its workers belong to a different round.
void Membership::stop_stale(NodeIndex index, MembershipActions& out) {
  auto& node = nodes_[index];
  node.has_workers = true;
  Stop stop;
  stop.grace = options_.policy->grace;
  stop.reason = stale_words(node.join);
  send(index, std::move(stop), out);
}

// After an election by votes a place has no name until its node joins and reports its rank.
void Membership::name_place(const Join& join) {
  const auto rank = join.node_rank.value();
  if (rank < places_.size() && places_[rank].id.name.empty())
    places_.name(rank, join.node, {join.first_rank, join.slots});
}

std::string Membership::stale_words(const Join& join) const {
  const std::string round = std::to_string(join.epoch.round.value());
  if (join.epoch == places_.epoch()) return "this node was given up in round " + round;
  return "stale round " + round + ", current " + std::to_string(epoch_.round.value());
}

void Membership::refuse(PeerId peer, Refused refused, MembershipActions& out, bool is_told) {
  if (is_told && refused.refusal != Refusal::moved && refused.refusal != Refusal::stale)
    out.emplace_back(TellHere{"refused an agent: " + refused.what, true});
  out.emplace_back(SendTo{peer, {epoch_, std::move(refused)}});
  out.emplace_back(ClosePeer{peer});
}

// A restarted agent is a new node; the place of its predecessor keeps no node.
NodeIndex Membership::enter(const Arrival& a) {
  const auto known = nodes_.by_name(a.join.node.name);
  if (known && nodes_[*known].join.node.incarnation != a.join.node.incarnation)
    places_.vacate(*known);
  departures_.returned(a.join.node.name);
  return nodes_.enter(a.peer, a.join, a.address, a.now);
}

void Membership::forget(NodeIndex index) {
  places_.vacate(index);
  nodes_.erase(index);
}

void Membership::welcome(NodeIndex index, Instant now, MembershipActions& out) {
  send(index,
       Welcome{options_.name, stamp(now), options_.timings.heartbeat_timeout,
               options_.timings.lease},
       out);
}

void Membership::tell_difference(NodeIndex index, MembershipActions& out) {
  auto found = take_difference(options_, nodes_[index].join);
  if (!found) return;
  if (!found->here.empty()) out.emplace_back(TellHere{std::move(found->here), true});
  send(index, Notice{std::string{kWarningNotice} + found->there}, out);
}

void Membership::take_place(NodeIndex index, std::size_t rank, Instant now) {
  places_.occupy(rank, index);
  auto& place = places_[rank];
  place.link_lost.reset();
  place.why_gone.clear();
  place.heard = now;
}

// A member of this round whose connection was lost, or that an elected coordinator waited for.
void Membership::reattach(NodeIndex index, NodeRank rank, Instant now, MembershipActions& out) {
  auto& place = places_[rank.value()];
  const auto& join = nodes_[index].join;
  take_place(index, rank.value(), now);
  if (join.state == NodeState::completed && place.state != NodeState::completed) {
    on(index, Completed{}, now, out);
    return;
  }
  if (phase_ == MembershipPhase::stopping) {
    if (!still_has_workers(join)) place.state = NodeState::stopped;
    if (place.state != NodeState::stopped) {
      Stop stop;
      stop.why = end_signal_.signo != 0 ? Stop::Why::end : stop_why_;
      stop.signo = end_signal_.signo;
      stop.grace = options_.policy->grace_after(end_signal_.signo);
      stop.reason = restart_reason_;
      stop.by = end_signal_.by;
      add_losses(stop);
      send(index, std::move(stop), out);
    }
    after_stop(now, out);
    return;
  }
  if (options_.external_leader && join.state == NodeState::assigned &&
      join.epoch.term != epoch_.term) {
    return drop_unbegun(place, now, out);
  }
  // Elected while the round was being assigned: which nodes started, and with which master, is
  // unknown.
  const bool is_unbegun = join.state == NodeState::assigned && phase_ == MembershipPhase::running &&
                          master_.host.empty();
  if (is_unbegun) return on(index, Stopped{}, now, out);
  if (join.state == NodeState::assigned) {  // it may have missed the answer to its Ready, or Start
    send_assignment(rank.value(), now, out);
    return;
  }
  if (phase_ == MembershipPhase::running && !still_has_workers(join) &&
      place.state != NodeState::completed) {
    on(index, Stopped{}, now, out);
  }
}

// ---- a job in progress lost its coordinator, and this one is new at the seed address ----

void Membership::take_over(const ElectionResult& result, Instant now, MembershipActions& out) {
  has_round_ = true;
  authority_->elected(result.nodes, result.before, now);
  epoch_ = {result.term, result.last.round};
  ledger_ = result.ledger;
  if (!options_.policy) {
    for (const auto& vote : result.votes) {
      if (vote.join.policy) options_.policy = vote.join.policy;
    }
  }
  if (!options_.policy) options_.policy = JobPolicy{};
  phase_ = MembershipPhase::running;
  phase_since_ = round_started_ = failures_.now_at = now;
  // Every node detected the loss by its own timeout, at most a heartbeat apart, and then had to
  // find us.
  recovering_until_ =
      now + options_.timings.heartbeat_timeout * 3 / 2 + options_.timings.heartbeat_interval();
  if (!result.closed_by.empty())
    departures_.note(result.closed_by, "lost: closed the connection",
                     now + options_.timings.return_limit());
  // All places must be known before the state of any node can end the round.
  recover_places(result, now);
  out.emplace_back(ResetStore{epoch_, true});
  recover_nodes(result, now, out);
  if (failures_.now) {
    stop_round(Stop::Why::restart, "the round was broken when the coordinator was lost", now, out);
  } else if (completed_ == places_.size()) {
    close({Outcome::succeeded, to_int(ExitCode::success)}, "", now, out);
  }
}

// Rebuilt from the votes. A voter without workers means that the round is broken.
void Membership::recover_places(const ElectionResult& result, Instant now) {
  Place unknown;
  unknown.state = NodeState::running;  // until its node reports; lease_end: see note_echo()
  unknown.heard = now;
  places_.assign_unknown(result.last, result.nodes, unknown);
  for (const auto& [rank, name] : result.names) {
    if (rank.value() < places_.size()) places_[rank.value()].told_name = name;
  }
  completed_ = 0;
  for (const auto& vote : result.votes) {
    const auto& join = vote.join;
    learn(options_, join);
    const std::size_t rank = join.node_rank.value();
    if (join.epoch != result.last || rank >= places_.size()) continue;
    places_.name(rank, join.node, {join.first_rank, join.slots});
    auto& place = places_[rank];
    if (join.state == NodeState::completed) {
      if (place.state != NodeState::completed) ++completed_;  // a node may vote twice
      place.state = NodeState::completed;
      place.has_completed = true;
    } else if (join.state != NodeState::running) {
      place.state = NodeState::stopped;
      failures_.set_node_lost(place.ranks.first, place.id.name, join.host,
                              "had no worker left when the coordinator was lost");
    }
  }
}

void Membership::recover_nodes(const ElectionResult& result, Instant now, MembershipActions& out) {
  for (const auto& vote : result.votes) {
    if (vote.peer == PeerId{0}) continue;  // this node: joins like all others
    const NodeIndex index = enter({vote.peer, vote.join, vote.address, now});
    welcome(index, now, out);
    const auto rank = vote.join.node_rank.value();
    if (vote.join.epoch == result.last && rank < places_.size()) {
      places_.occupy(rank, index);
    } else if (still_has_workers(vote.join)) {
      stop_stale(index, out);
    }
  }
}

}  // namespace acc::rendezvous
