#include "rendezvous/membership.hpp"

#include <algorithm>

// A coordinator elected by etcd: the record it leaves for its successor, and the one it inherits.
namespace acc::rendezvous {

void Membership::commit_round(Instant now, MembershipActions& out) {
  CommitRound commit{{epoch_, ledger_, {}}};
  commit.record.rows.reserve(places_.size());
  for (const auto& place : places_) commit.record.rows.push_back({place.id, place.ranks});
  given_up_.commits(now);
  out.emplace_back(std::move(commit));
}

MembershipActions Membership::committed(const Epoch& epoch, Instant now) {
  MembershipActions out;
  const bool is_awaited =
      phase_ == MembershipPhase::assigning && epoch == epoch_ && ready_ == places_.size();
  if (!is_awaited) return out;
  // Leases count from Ready: what is left of them must be worth a start.
  if (given_up_.commit_took(now) > options_.timings.lease / 2) {
    begin_gathering(now);
    consider_round(now, out);
  } else {
    start_round(now, out);
  }
  return out;
}

// All leases that the previous coordinator granted end within one lease from now: it had lost its
// etcd lease when this one was elected.
MembershipActions Membership::recover(const RoundRecord& last, Instant now) {
  MembershipActions out;
  has_round_ = recovered_unconfirmed_ = true;
  epoch_.round = last.epoch.round;
  ledger_ = last.ledger;
  places_.begin(last.epoch);
  for (const auto& row : last.rows) {
    Place place;
    place.id = row.node;
    place.ranks = row.ranks;
    place.state = NodeState::running;  // until its node reports
    place.heard = now;
    place.lease_end = now + options_.timings.lease;
    places_.add(std::move(place));
  }
  completed_ = 0;
  phase_ = MembershipPhase::running;
  phase_since_ = round_started_ = now;
  recovering_until_ = now + options_.timings.heartbeat_timeout;
  out.emplace_back(ResetStore{epoch_, true});
  return out;
}

// True for an agent that another coordinator of this job has welcomed.
bool Membership::knows_the_job(const Join& join) const {
  return join.vote.number > 0 && join.vote < epoch_.term;
}

std::string Membership::doubt() const {
  return "etcd holds round " + std::to_string(epoch_.round.value()) + " of job '" + options_.job +
         "', and none of its nodes has come yet: if it was an earlier run that crashed, this one "
         "starts " +
         describe(options_.timings.lease + options_.timings.lease_slack()) +
         " after this node took over";
}

// The coordinator was lost before Start, and the address of rank 0 with it. This is not a failure.
void Membership::drop_unbegun(Place& place, Instant now, MembershipActions& out) {
  place.state = NodeState::stopped;
  stop_round(Stop::Why::membership,
             "the round had not begun everywhere when its coordinator was lost", now, out);
  after_stop(now, out);
}

void Membership::start_anew(Instant now, MembershipActions& out) {
  out.emplace_back(TellHere{"nobody is left of the earlier run of job '" + options_.job +
                            "' that etcd knew: this one starts with a fresh restart budget"});
  recovered_unconfirmed_ = has_round_ = false;
  newest_heard_ = std::max(newest_heard_.value_or(Round{0}), epoch_.round);
  ledger_ = {};
  failures_.now.reset();
  restart_reason_.clear();
  places_ = {};
  nodes_.forget_spares();
  begin_gathering(now);
  consider_round(now, out);
}

}  // namespace acc::rendezvous
