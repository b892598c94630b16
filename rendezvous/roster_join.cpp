#include "common/text.hpp"
#include "rendezvous/roster.hpp"

#include <algorithm>

// Who is let in, and what becomes of those who come back.
namespace acc::rendezvous {

namespace {

std::string version_text(unsigned major, unsigned minor) {
  return std::to_string(major) + "." + std::to_string(minor);
}

std::string nodes_text(std::uint32_t min, std::uint32_t max) {
  return min == max ? std::to_string(min) : std::to_string(min) + ":" + std::to_string(max);
}

bool versions_agree(const Join& join) {
  const int gap = int{join.version_minor} - int{kVersionMinor};
  return join.version_major == kVersionMajor && gap >= -1 && gap <= 1;
}

bool still_has_workers(const Join& join) { return join.holding == Holding::running; }

}  // namespace

RosterActions Roster::joined(PeerId peer, const Join& join, const std::string& address,
                             Instant now) {
  RosterActions out;
  if (phase_ == RosterPhase::stepped_down) return out;
  if (auto objection = this->objection(join)) {
    refuse(peer, std::move(*objection), out);
    return out;
  }
  if (over_) {  // it lost its connection right at the end
    out.emplace_back(SendTo{peer, {epoch_, *over_}});
    out.emplace_back(ClosePeer{peer});
    return out;
  }
  if (options_.has_witness && !has_authority(now)) {
    refuse(
        peer,
        {Refusal::not_coordinator, "node " + options_.name + " is coordinator no more", {}, false},
        out);
    return out;
  }
  const bool has_history = join.epoch.term.number > 0;
  // With etcd a round that may have started is known, unless etcd lost its data.
  const bool knows_another =
      options_.has_witness ? join.holding > Holding::assigned : join.vote.number > 0;
  heard_of_another_ = heard_of_another_ || (!has_round_ && knows_another);
  if (has_history || join.vote.number > 0)
    newest_heard_ = std::max(newest_heard_.value_or(Round{0}), join.epoch.round);
  if (has_history && !has_round_ && !options_.has_witness) {
    collect_vote(peer, join, address, now, out);
    return out;
  }
  if (join.vote > epoch_.term) {
    refuse(peer,
           {Refusal::stale,
            "a newer coordinator was elected: term " + std::to_string(join.vote.number) +
                ", here " + std::to_string(epoch_.term.number),
            {},
            false},
           out);
    step_down(
        "another coordinator was elected meanwhile (term " + std::to_string(join.vote.number) + ")",
        out);
    return out;
  }
  if (auto objection = duplicate(join, address, now)) {
    refuse(peer, std::move(*objection), out);
    return out;
  }
  if (options_.nodes_max == 0) {
    options_.nodes_min = join.nodes_min;
    options_.nodes_max = join.nodes_max;
  }
  if (options_.facts.empty()) options_.facts = join.facts;
  if (!options_.policy) options_.policy = join.policy.value_or(JobPolicy{});

  is_doubtful_ = is_doubtful_ && !knows_the_job(join);
  // While nobody was here nobody waited.
  if (by_peer_.empty() && phase_ == RosterPhase::gathering) begin_gathering(now);
  if (const auto known = by_name_.find(join.node.name); known != by_name_.end()) {
    const auto old_link = nodes_[known->second]->peer;
    if (old_link) out.emplace_back(ClosePeer{*old_link});
  }
  const NodeIndex index = enter(peer, join, address, now);
  welcome(index, now, out);
  const bool same_round = has_history && join.epoch.round == epoch_.round;
  if (same_round) name_place(join);
  const auto rank = place_by_name_.find(join.node.name);
  Place* const place = rank != place_by_name_.end() ? &places_[rank->second] : nullptr;
  const bool is_same_agent = place != nullptr && place->incarnation == join.node.incarnation;
  const bool in_round = phase_ != RosterPhase::gathering && phase_ != RosterPhase::backing_off;
  // With etcd: assigned to a later round that was never committed, so done with this one.
  const bool is_past_it = options_.has_witness && is_same_agent && !still_has_workers(join) &&
                          has_history && join.epoch.round > epoch_.round;
  if (is_same_agent && (same_round || is_past_it) && in_round && !place->gone) {
    reattach(index, NodeRank{static_cast<std::uint32_t>(rank->second)}, now, out);
    return out;
  }
  // Between two rounds: as long as it isn't in its place, it counts neither as back nor as a
  // witness of our being in office.
  if (is_same_agent && same_round && !in_round && !place->gone)
    take_place(index, rank->second, now);
  const bool is_back_without = is_same_agent && same_round && !still_has_workers(join);
  if (is_back_without && phase_ == RosterPhase::stopping) place->holding = Holding::stopped;
  if (still_has_workers(join)) {
    nodes_[index]->has_workers = true;
    Stop stop;
    stop.grace = options_.policy->grace;
    stop.reason = stale_words(join);
    send(*nodes_[index], std::move(stop), out);
  }
  if (place != nullptr && !is_same_agent && in_round && !place->gone)
    lose(rank->second, "its agent was started again", now, out);
  if (is_doubtful_) {
    send(*nodes_[index], Notice{doubt()}, out);
  } else if (phase_ == RosterPhase::running) {
    const bool room = places_.size() < options_.nodes_max;
    const bool grows = room && options_.policy->scale_up_now && !recovering_until_;
    tell_spares(out, grows ? "the job runs already: its workers stop now, to start again with this "
                             "node's"
                           : "");
    if (grows) {
      membership_change_ = true;
      stop_round(Stop::Why::membership, "node " + join.node.name + " joined", now, out);
    }
  }
  consider_round(now, out);
  return out;
}

// After an election without a witness a place has no name until its node comes, which knows its
// rank.
void Roster::name_place(const Join& join) {
  const auto rank = join.node_rank.value();
  if (rank >= places_.size() || !places_[rank].name.empty()) return;
  auto& place = places_[rank];
  place.name = join.node.name;
  place.incarnation = join.node.incarnation;
  place.first = join.first_rank;
  place.slots = join.slots;
  place_by_name_[place.name] = rank;
}

std::string Roster::stale_words(const Join& join) const {
  const std::string round = std::to_string(join.epoch.round.value());
  if (join.epoch.round == epoch_.round) return "this node was given up in round " + round;
  return "stale round " + round + ", current " + std::to_string(epoch_.round.value());
}

std::optional<Refused> Roster::objection(const Join& join) const {
  const std::string who = "node " + in_quotes(join.node.name);
  const auto refused = [](Refusal code, std::string what) {
    return Refused{code, std::move(what), {}, true};
  };
  if (!versions_agree(join)) {
    return refused(Refusal::version,
                   "this agent speaks version " +
                       version_text(join.version_major, join.version_minor) +
                       " of the protocol, the coordinator on " + options_.name + " version " +
                       version_text(kVersionMajor, kVersionMinor) + " (it takes " +
                       version_text(kVersionMajor, kVersionMinor == 0 ? 0 : kVersionMinor - 1) +
                       " to " + version_text(kVersionMajor, kVersionMinor + 1) +
                       "): install the same acc-launch on all nodes");
  }
  if (join.job != options_.job) {
    return refused(Refusal::wrong_job, "this agent belongs to job " + in_quotes(join.job) +
                                           ", the coordinator on " + options_.name + " to job " +
                                           in_quotes(options_.job) +
                                           ": give the same --rdzv_id, or another port");
  }
  const bool counts_differ = options_.nodes_max != 0 && (join.nodes_min != options_.nodes_min ||
                                                         join.nodes_max != options_.nodes_max);
  if (counts_differ) {
    return refused(Refusal::mismatch, who + " was started for " +
                                          nodes_text(join.nodes_min, join.nodes_max) +
                                          " nodes, the coordinator on " + options_.name + " for " +
                                          nodes_text(options_.nodes_min, options_.nodes_max));
  }
  if (join.slots == 0) return refused(Refusal::mismatch, who + " has no worker to start");
  if (join.wanted && join.wanted->value() >= join.nodes_max) {
    return refused(Refusal::mismatch, who + " wants rank " + std::to_string(join.wanted->value()) +
                                          " of " + std::to_string(join.nodes_max) + " nodes");
  }
  return compare_facts(join);
}

std::optional<Refused> Roster::compare_facts(const Join& join) const {
  for (const auto& ours : options_.facts) {
    const auto theirs = std::ranges::find(join.facts, ours.name, &Fact::name);
    if (theirs != join.facts.end() && theirs->hash == ours.hash) continue;
    const std::string value = theirs != join.facts.end() ? in_quotes(theirs->value) : "nothing";
    return Refused{Refusal::mismatch,
                   "node " + in_quotes(join.node.name) + " was started with " + ours.name + " " +
                       value + ", the coordinator on " + options_.name + " with " +
                       in_quotes(ours.value) + ": all nodes of a job need the same",
                   {},
                   true};
  }
  return std::nullopt;
}

// One node, one rank: the one that joined first and still speaks keeps it.
std::optional<Refused> Roster::duplicate(const Join& join, const std::string& address,
                                         Instant now) const {
  const auto speaks = [&](const Node& node) {
    return node.peer && now - node.heard < options_.timings.beat() * 3;
  };
  const auto where = [&](const Join& one, const std::string& by_socket) {
    const auto& said = by_socket.empty() ? one.address : by_socket;
    return printable(one.host) + " (" + (said.empty() ? options_.where : said) + ")";
  };
  const auto refused = [&](const Node& holder, const std::string& what, std::string_view flag) {
    return Refused{Refusal::duplicate,
                   what + " is taken by node " + in_quotes(holder.join.node.name) + " on " +
                       where(holder.join, holder.address) + "; this agent is on " +
                       where(join, address) + ": give each machine its own " + std::string{flag},
                   {},
                   true};
  };
  const auto rank_taken = [&](const Node& holder) {
    return refused(holder, "node rank " + std::to_string(join.wanted->value()),
                   "--node_rank (--machine_rank)");
  };
  const auto same_name = by_name_.find(join.node.name);
  if (same_name != by_name_.end()) {
    const auto& node = *nodes_[same_name->second];
    if (node.join.node.incarnation != join.node.incarnation && speaks(node)) {
      const bool by_rank = join.wanted && node.join.wanted == join.wanted;
      return by_rank ? rank_taken(node)
                     : refused(node, "the node name " + in_quotes(join.node.name), "--node_name");
    }
  }
  if (!join.wanted) return std::nullopt;
  const auto same_rank = by_wanted_.find(join.wanted->value());
  if (same_rank == by_wanted_.end()) return std::nullopt;
  const auto& node = *nodes_[same_rank->second];
  if (node.join.node.name == join.node.name || !speaks(node)) return std::nullopt;
  return rank_taken(node);
}

void Roster::refuse(PeerId peer, Refused refused, RosterActions& out) {
  if (refused.refusal != Refusal::moved && refused.refusal != Refusal::stale)
    out.emplace_back(TellHere{"refused an agent: " + refused.what, true});
  out.emplace_back(SendTo{peer, {epoch_, std::move(refused)}});
  out.emplace_back(ClosePeer{peer});
}

Roster::NodeIndex Roster::enter(PeerId peer, const Join& join, const std::string& address,
                                Instant now) {
  NodeIndex index = kNobody;
  if (const auto known = by_name_.find(join.node.name); known != by_name_.end()) {
    index = known->second;
    const auto& wanted = nodes_[index]->join.wanted;  // it may want another rank now
    if (wanted && by_wanted_[wanted->value()] == index) by_wanted_.erase(wanted->value());
    if (nodes_[index]->peer) by_peer_.erase(*nodes_[index]->peer);
    const bool same = nodes_[index]->join.node.incarnation == join.node.incarnation;
    if (!same) {  // its place, if any, stays behind without it
      if (const auto place = place_of(index)) {
        places_[*place].node = kNobody;
        place_by_node_.erase(index);
      }
    }
  } else if (!free_.empty()) {
    index = free_.back();
    free_.pop_back();
  } else {
    index = nodes_.size();
    nodes_.emplace_back();
  }
  nodes_[index] = Node{join, address, peer, now, false, false, ++arrivals_};
  by_name_[join.node.name] = index;
  by_peer_[peer] = index;
  if (join.wanted) by_wanted_[join.wanted->value()] = index;
  last_arrival_ = now;
  return index;
}

void Roster::forget(NodeIndex index) {
  if (const auto place = place_of(index)) {
    places_[*place].node = kNobody;
    place_by_node_.erase(index);
  }
  const auto& join = nodes_[index]->join;
  by_name_.erase(join.node.name);
  if (join.wanted && by_wanted_[join.wanted->value()] == index)
    by_wanted_.erase(join.wanted->value());
  if (nodes_[index]->peer) by_peer_.erase(*nodes_[index]->peer);
  nodes_[index].reset();
  free_.push_back(index);
}

void Roster::welcome(NodeIndex index, Instant now, RosterActions& out) {
  send(*nodes_[index],
       Welcome{options_.name, stamp(now), options_.timings.beat(), options_.timings.dead,
               options_.timings.lease},
       out);
}

void Roster::take_place(NodeIndex index, std::size_t rank, Instant now) {
  auto& place = places_[rank];
  place.node = index;
  place_by_node_[index] = rank;
  place.link_lost.reset();
  place.why_gone.clear();
  place.heard = now;
}

// A member of this round whose connection broke, or that an elected coordinator waited for.
void Roster::reattach(NodeIndex index, NodeRank rank, Instant now, RosterActions& out) {
  auto& place = places_[rank.value()];
  const auto& join = nodes_[index]->join;
  take_place(index, rank.value(), now);
  if (join.holding == Holding::completed && place.holding != Holding::completed) {
    on(index, Completed{}, now, out);
    return;
  }
  if (phase_ == RosterPhase::stopping) {
    if (!still_has_workers(join)) place.holding = Holding::stopped;
    if (place.holding != Holding::stopped) {
      Stop stop;
      stop.why = stop_signal_ != 0 ? Stop::Why::end : Stop::Why::restart;
      stop.signo = stop_signal_;
      stop.grace = options_.policy->grace;
      stop.reason = restart_reason_;
      stop.by = stopped_by_;
      add_losses(stop);
      send(*nodes_[index], std::move(stop), out);
    }
    after_stop(now, out);
    return;
  }
  if (options_.has_witness && join.holding == Holding::assigned && join.epoch.term != epoch_.term) {
    return drop_unbegun(place, now, out);
  }
  // Elected while the round was being assigned: who has started, and with which master, is unknown.
  const bool is_unbegun =
      join.holding == Holding::assigned && phase_ == RosterPhase::running && master_.host.empty();
  if (is_unbegun) return on(index, Stopped{}, now, out);
  if (join.holding == Holding::assigned) {  // it may have missed Assigned's answer or Start
    send_assignment(rank.value(), now, out);
    return;
  }
  if (phase_ == RosterPhase::running && !still_has_workers(join) &&
      place.holding != Holding::completed) {
    on(index, Stopped{}, now, out);
  }
}

// ---- a job in progress finds its coordinator gone, and this one fresh at the old address ----

bool Roster::collect_vote(PeerId peer, const Join& join, const std::string& address, Instant now,
                          RosterActions& out) {
  ballot_.add({peer, join, address});
  const auto win = ballot_.win(0);
  if (!win) return false;
  ballot_.clear();
  adopt(*win, now, out);
  return true;
}

void Roster::adopt(const Win& win, Instant now, RosterActions& out) {
  elected_ = true;
  has_round_ = true;
  is_confirmed_ = false;
  won_at_ = now;
  epoch_ = {win.term, win.last.round};
  ledger_ = win.ledger;
  if (!options_.policy) {
    for (const auto& vote : win.votes) {
      if (vote.join.policy) options_.policy = vote.join.policy;
    }
  }
  if (!options_.policy) options_.policy = JobPolicy{};
  places_.assign(win.nodes, Place{});
  place_by_name_.clear();
  for (auto& place : places_) {
    place.holding = Holding::running;  // until we know better
    place.heard = now;                 // lease_end: see confirm()
  }
  completed_ = 0;
  phase_ = RosterPhase::running;
  phase_since_ = round_started_ = now;
  // All noticed the loss by their own silence, a beat apart at most, and then had to find us.
  recovering_until_ = now + options_.timings.dead * 3 / 2 + options_.timings.beat();
  bool broken = false;
  failed_at_ = now;
  // All places are known before anybody's state can end the round.
  for (const auto& vote : win.votes) {
    const auto& join = vote.join;
    if (options_.nodes_max == 0) {
      options_.nodes_min = join.nodes_min;
      options_.nodes_max = join.nodes_max;
    }
    if (options_.facts.empty()) options_.facts = join.facts;
    if (join.epoch != win.last || join.node_rank.value() >= places_.size()) continue;
    auto& place = places_[join.node_rank.value()];
    place.name = join.node.name;
    place.incarnation = join.node.incarnation;
    place.first = join.first_rank;
    place.slots = join.slots;
    place_by_name_[place.name] = join.node_rank.value();
    if (join.holding == Holding::completed) {
      place.holding = Holding::completed;
      ++completed_;
    } else if (join.holding != Holding::running) {
      place.holding = Holding::stopped;
      broken = true;
      failure_ = Failure{};
      failure_->kind = Failure::Kind::node_lost;
      failure_->rank = place.first;
      failure_->node = place.name;
      failure_->host = join.host;
      failure_->cause = "had no worker left when the coordinator was lost";
    }
  }
  out.emplace_back(ResetStore{epoch_});
  for (const auto& vote : win.votes) {
    if (vote.peer == PeerId{0}) continue;  // ourselves: comes as everybody does
    const NodeIndex index = enter(vote.peer, vote.join, vote.address, now);
    welcome(index, now, out);
    const bool is_of_round =
        vote.join.epoch == win.last && vote.join.node_rank.value() < places_.size();
    if (is_of_round) {
      places_[vote.join.node_rank.value()].node = index;
      place_by_node_[index] = vote.join.node_rank.value();
    } else if (still_has_workers(vote.join)) {
      nodes_[index]->has_workers = true;
      Stop stop;
      stop.grace = options_.policy->grace;
      stop.reason = stale_words(vote.join);
      send(*nodes_[index], std::move(stop), out);
    }
  }
  if (broken) {
    stop_round(Stop::Why::restart, "the round was broken when the coordinator was lost", now, out);
  } else if (completed_ == places_.size()) {
    close(Outcome::succeeded, 0, "", now, out);
  }
}

}  // namespace acc::rendezvous
