#include "rendezvous/roster.hpp"

#include <algorithm>

// A coordinator that etcd made: what it leaves to its successor, and what it has from the one
// before.
namespace acc::rendezvous {

void Roster::commit_round(Instant now, RosterActions& out) {
  CommitRound commit{{epoch_, ledger_, {}}};
  commit.record.rows.reserve(places_.size());
  for (const auto& place : places_)
    commit.record.rows.push_back({{place.name, place.incarnation}, place.first, place.slots});
  committing_since_ = now;
  out.emplace_back(std::move(commit));
}

RosterActions Roster::committed(const Epoch& epoch, Instant now) {
  RosterActions out;
  const bool is_awaited =
      phase_ == RosterPhase::assigning && epoch == epoch_ && ready_ == places_.size();
  if (!is_awaited) return out;
  // Leases count from the Ready: what is left of them must be worth a start.
  if (now - committing_since_ > options_.timings.lease / 2) {
    begin_gathering(now);
    consider_round(now, out);
  } else {
    start_round(now, out);
  }
  return out;
}

// Whatever the one before us granted is over one lease from now: he had stepped down when we won.
RosterActions Roster::inherit(const RoundRecord& last, Instant now) {
  RosterActions out;
  elected_ = has_round_ = is_doubtful_ = true;
  won_at_ = now;
  epoch_.round = last.epoch.round;
  ledger_ = last.ledger;
  places_.clear();
  place_by_name_.clear();
  for (const auto& row : last.rows) {
    Place place;
    place.name = row.node.name;
    place.incarnation = row.node.incarnation;
    place.first = row.first;
    place.slots = row.slots;
    place.holding = Holding::running;  // until we know better
    place.heard = now;
    place.lease_end = now + options_.timings.lease;
    place_by_name_[place.name] = places_.size();
    places_.push_back(std::move(place));
  }
  completed_ = 0;
  phase_ = RosterPhase::running;
  phase_since_ = round_started_ = now;
  recovering_until_ = now + options_.timings.dead;
  out.emplace_back(ResetStore{epoch_});
  return out;
}

// An agent that another coordinator of this job has welcomed.
bool Roster::knows_the_job(const Join& join) const {
  return join.vote.number > 0 && join.vote < epoch_.term;
}

std::string Roster::doubt() const {
  return "etcd holds round " + std::to_string(epoch_.round.value()) + " of job '" + options_.job +
         "', and none of its nodes has come yet: if it was an earlier run that crashed, this one "
         "starts " +
         describe(options_.timings.lease + lease_slack()) + " after this node took over";
}

// Its coordinator went before the Start, and with it the address of rank 0. Nobody failed.
void Roster::drop_unbegun(Place& place, Instant now, RosterActions& out) {
  place.holding = Holding::stopped;
  membership_change_ = true;
  stop_round(Stop::Why::membership,
             "the round had not begun everywhere when its coordinator was lost", now, out);
  after_stop(now, out);
}

void Roster::start_anew(Instant now, RosterActions& out) {
  out.emplace_back(TellHere{"nobody is left of the earlier run of job '" + options_.job +
                            "' that etcd knew: this one starts with a fresh restart budget"});
  is_doubtful_ = has_round_ = false;
  newest_heard_ = std::max(newest_heard_.value_or(Round{0}), epoch_.round);
  ledger_ = {};
  failure_.reset();
  restart_reason_.clear();
  membership_change_ = false;
  places_.clear();
  place_by_node_.clear();
  place_by_name_.clear();
  for (auto& node : nodes_) {
    if (node) node->told_spare = false;
  }
  begin_gathering(now);
  consider_round(now, out);
}

}  // namespace acc::rendezvous
