#include "rendezvous/member.hpp"

#include "rendezvous/planted.hpp"

#include <algorithm>

// What an agent does once it has a coordinator. How it finds one stands in member_seek.cpp.
namespace acc::rendezvous {

Member::Member(MemberOptions options, Instant now)
    : options_{std::move(options)},
      timings_{options_.timings},
      coordinator_{options_.home},
      coordinator_here_{options_.hosts},
      began_{now},
      lost_at_{now},
      ticked_{now},
      random_{options_.seed} {}

MemberActions Member::received(const Frame& frame, Instant now) {
  MemberActions out;
  if (phase_ != LinkPhase::member && phase_ != LinkPhase::joining) return out;
  if (phase_ == LinkPhase::member) heard_ = now;
  std::visit([&](const auto& message) { on(frame, message, now, out); }, frame.message);
  return out;
}

bool Member::is_stale(const Frame& frame) const {
  if (planted::accept_stale_round) return false;
  return phase_ != LinkPhase::member || frame.epoch.term != term_ ||
         frame.epoch.round < epoch_.round;
}

void Member::on(const Frame& frame, const Welcome& welcome, Instant now, MemberActions& out) {
  if (frame.epoch.term < term_) {  // somebody who doesn't know yet that he was replaced
    seek_again(backoff(), now, out);
    return;
  }
  const bool is_new = term_.number != 0 && frame.epoch.term != term_;
  phase_ = LinkPhase::member;
  term_ = frame.epoch.term;
  timings_.dead = welcome.dead;
  timings_.lease = welcome.lease;
  echo_ = welcome.stamp;
  heard_ = now;
  coordinator_ = dialed_;
  next_beat_ = now;
  dials_ = 0;
  last_failure_.clear();
  send_voters_to(has_coordinator(), out);
  if (is_new) {
    out.emplace_back(Tell{"the coordinator is now on " + welcome.coordinator + " (term " +
                          std::to_string(term_.number) + ", round " +
                          std::to_string(epoch_.round.value()) + ")"});
  } else if (lost_at_ != began_) {
    out.emplace_back(Tell{"in contact with the coordinator on " + welcome.coordinator + " again"});
  }
  if (unsent_failure_) send(WorkerFailed{*unsent_failure_}, out);
  unsent_failure_.reset();
  // What came between the Join and its answer.
  if (holding_ != joined_with_ && holding_ == Holding::completed) send(Completed{}, out);
  if (holding_ != joined_with_ && holding_ == Holding::stopped) send(Stopped{}, out);
  if (unsent_wish_) send(Wish{unsent_wish_->first, unsent_wish_->second}, out);
  unsent_wish_.reset();
  beat(now, out);
}

void Member::on(const Frame& frame, const Assigned& assigned, Instant now, MemberActions& out) {
  if (is_stale(frame) || has_workers()) return;
  echo_ = assigned.stamp;
  if (assigned.spare) {
    holding_ = Holding::nothing;
    standbys_ = assigned.standbys;
    out.emplace_back(Tell{assigned.reason.empty()
                              ? "the job runs without this node: it waits as a spare"
                              : assigned.reason});
    return;
  }
  const bool is_repeated = frame.epoch == epoch_ && port_ != 0;
  if (!is_repeated) port_ = 0;
  epoch_ = frame.epoch;
  holding_ = Holding::assigned;
  standbys_ = assigned.standbys;
  place_ = {epoch_, assigned.node_rank, assigned.nodes, assigned.first_rank, assigned.world_size,
            {},     assigned.ledger,    assigned.reason};
  if (assigned.node_rank == NodeRank{0} && !is_repeated) {
    out.emplace_back(OrderPort{});
  } else {
    send_ready(port_, now, out);
  }
}

MemberActions Member::port_reserved(std::uint16_t port, Instant now) {
  MemberActions out;
  port_ = port;
  if (holding_ == Holding::assigned && phase_ == LinkPhase::member) send_ready(port, now, out);
  return out;
}

void Member::send_ready(std::uint16_t port, Instant now, MemberActions& out) {
  send(Ready{next_beat(now), echo_, port}, out);
}

void Member::on(const Frame& frame, const Start& start, Instant now, MemberActions& out) {
  const bool is_ours = frame.epoch == epoch_ && holding_ == Holding::assigned;
  if (is_stale(frame) || (!is_ours && !planted::accept_stale_round) || has_workers()) return;
  lease_end_.reset();
  renew_lease(start.beat, start.granted, out);
  if (!may_run(now)) {  // too old to be of use: the place is given back
    lease_end_.reset();
    out.emplace_back(ClearLease{});
    holding_ = Holding::stopped;
    send(Stopped{}, out);
    return;
  }
  holding_ = Holding::running;
  place_.master = start.master;
  out.emplace_back(OrderRound{place_});
}

// Counted from the moment at which the beat was sent, by this clock: whatever delays the answer
// only shortens the lease.
void Member::renew_lease(std::uint32_t beat, Millis granted, MemberActions& out) {
  const auto& [number, sent] = beats_sent_[beat % kBeatsKept];
  if (number != beat || granted <= Millis{0}) return;
  if (lease_end_ && *lease_end_ >= sent + granted) return;
  lease_end_ = sent + granted;
  is_lease_doubted_ = false;
  out.emplace_back(SetLease{*lease_end_});
}

// Nearly the shortest of late: a pause of either side says nothing about the line.
void Member::note_round_trip(Millis took) {
  const auto longer = round_trip_ + round_trip_ / 8 + Millis{1};
  round_trip_ = round_trip_ == Millis{0} ? took : std::min(took, longer);
}

void Member::on(const Frame& frame, const BeatAck& ack, Instant now, MemberActions& out) {
  if (is_stale(frame)) return;
  echo_ = std::max(echo_, ack.stamp);
  const auto& [number, sent] = beats_sent_[ack.beat % kBeatsKept];
  if (number == ack.beat) note_round_trip(std::chrono::duration_cast<Millis>(now - sent));
  // A lease that is over stays over: its workers are being killed.
  if (has_workers() && may_run(now)) renew_lease(ack.beat, ack.granted, out);
}

void Member::on(const Frame& frame, const Stop& stop, Instant, MemberActions& out) {
  if (is_stale(frame)) return;
  if (has_workers()) {
    out.emplace_back(OrderStop{stop});
    return;
  }
  if (holding_ != Holding::nothing) holding_ = Holding::stopped;
  send(Stopped{}, out);
}

void Member::on(const Frame& frame, const Signal& signal, Instant, MemberActions& out) {
  if (!is_stale(frame) && has_workers()) out.emplace_back(OrderSignal{signal});
}

void Member::on(const Frame&, const Close& close, Instant, MemberActions& out) {
  phase_ = LinkPhase::ended;
  out.emplace_back(OrderClose{close});
  out.emplace_back(Hang{});
}

void Member::on(const Frame&, const Notice& notice, Instant, MemberActions& out) {
  out.emplace_back(Tell{notice.text});
}

void Member::on(const Frame& frame, const Probe& probe, Instant now, MemberActions& out) {
  if (is_stale(frame)) return;
  echo_ = std::max(echo_, probe.stamp);
  beat(now, out);
}

// What was sent before the doubt may be older than it looks, so an answer to it proves nothing. A
// wall clock that was merely set costs one beat; after a pause the coordinator has given our place
// away and says so, or isn't there.
MemberActions Member::clock_doubted(Instant now) {
  MemberActions out;
  if (phase_ == LinkPhase::ended || planted::trust_stopped_clocks) return out;
  beats_sent_.fill({});
  const Instant end = now + timings_.confirmation();
  if (has_workers() && lease_end_ && end < *lease_end_) {
    lease_end_ = end;
    is_lease_doubted_ = true;
    out.emplace_back(SetLease{end});
  }
  if (phase_ == LinkPhase::member) beat(now, out);
  return out;
}

MemberActions Member::worker_failed(const Failure& failure, Instant) {
  MemberActions out;
  if (phase_ == LinkPhase::member) {
    send(WorkerFailed{failure}, out);
  } else {
    unsent_failure_ = failure;
  }
  return out;
}

MemberActions Member::workers_completed(Instant) {
  MemberActions out;
  if (!has_workers()) return out;
  holding_ = Holding::completed;
  lease_end_.reset();
  out.emplace_back(ClearLease{});
  if (phase_ == LinkPhase::member) send(Completed{}, out);
  return out;
}

MemberActions Member::workers_stopped(bool progress, Instant now) {
  MemberActions out;
  if (holding_ == Holding::nothing) return out;
  holding_ = Holding::stopped;
  lease_end_.reset();
  out.emplace_back(ClearLease{});
  if (phase_ == LinkPhase::member) send(Stopped{progress}, out);
  if (give_up_when_empty_) give_up(give_up_when_empty_->why, give_up_when_empty_->text, out);
  consider_giving_up(now, out);
  return out;
}

MemberActions Member::signal_came(int signo, std::uint32_t interrupts, Instant) {
  MemberActions out;
  if (phase_ == LinkPhase::member) {
    send(Wish{signo, interrupts}, out);
  } else {
    unsent_wish_ = {signo, interrupts};
  }
  return out;
}

MemberActions Member::leaves(const std::string& why, Instant) {
  MemberActions out;
  if (phase_ == LinkPhase::member) send(Leave{why}, out);
  if (phase_ != LinkPhase::ended) out.emplace_back(Hang{});
  phase_ = LinkPhase::ended;
  return out;
}

MemberActions Member::tick(Instant now) {
  MemberActions out;
  const bool was_asleep = now - ticked_ > timings_.dead / 2;
  ticked_ = now;
  if (phase_ == LinkPhase::ended) return out;
  // Our own pause is no silence of the coordinator: what it said meanwhile lies in the socket.
  if (was_asleep) heard_ = now;
  check_lease(now, out);
  switch (phase_) {
    case LinkPhase::member:
      if (now - heard_ > timings_.dead) {
        out.emplace_back(Hang{});
        lose_link("no traffic from it for " + describe(timings_.dead), now, out);
      } else if (now >= next_beat_) {
        beat(now, out);
      }
      break;
    case LinkPhase::dialing:
    case LinkPhase::joining:
      if (now >= link_deadline_) {
        if (last_failure_.empty() || phase_ == LinkPhase::joining)
          last_failure_ = "it does not answer";
        seek_again(backoff(), now, out);
      }
      break;
    case LinkPhase::seeking:
      if (now >= next_dial_) dial_next(now, out);
      break;
    case LinkPhase::ended:
      break;
  }
  count_votes(now, out);
  send_voters_on(now, out);
  consider_giving_up(now, out);
  if (phase_ != LinkPhase::member) tell_seeking(now, out);
  return out;
}

void Member::check_lease(Instant now, MemberActions& out) {
  if (!has_workers() || !lease_end_ || now < *lease_end_) return;
  lease_end_.reset();  // the guardian's copy stays: it goes on killing
  out.emplace_back(OrderKill{
      is_lease_doubted_
          ? "the clocks of this machine may have stood still, and the job's coordinator did not "
            "confirm the lease within " +
                describe(timings_.confirmation())
          : "no contact with the job's coordinator for " + describe(timings_.lease) +
                ": the lease is over"});
}

std::uint32_t Member::next_beat(Instant now) {
  ++beat_;
  beats_sent_[beat_ % kBeatsKept] = {beat_, now};
  return beat_;
}

void Member::beat(Instant now, MemberActions& out) {
  next_beat_ = now + timings_.beat();
  send(Beat{next_beat(now), echo_, holding_, alive_}, out);
}

void Member::send(Message message, MemberActions& out) const {
  out.emplace_back(Send{{{term_, epoch_.round}, std::move(message)}});
}

Instant Member::next_deadline() const {
  if (phase_ == LinkPhase::ended) return Instant::max();
  Instant next = ticked_ + timings_.dead / 4;
  if (phase_ == LinkPhase::member) next = std::min(next, next_beat_);
  if (phase_ == LinkPhase::seeking) next = std::min(next, next_dial_);
  if (phase_ == LinkPhase::dialing || phase_ == LinkPhase::joining)
    next = std::min(next, link_deadline_);
  if (phase_ == LinkPhase::joining && !ballot_.empty()) next = std::min(next, gives_vote_at_);
  if (lease_end_ && has_workers()) next = std::min(next, *lease_end_);
  return next;
}

std::string_view to_string(LinkPhase phase) {
  constexpr std::string_view kNames[] = {"seeking", "dialing", "joining", "member", "ended"};
  return kNames[static_cast<std::size_t>(phase)];
}

}  // namespace acc::rendezvous
