#include "rendezvous/coordinator_client.hpp"

#include "common/enum_names.hpp"
#include "rendezvous/planted.hpp"

#include <algorithm>

// An agent that has a coordinator. Finding one is in coordinator_client_seek.cpp.
namespace acc::rendezvous {

CoordinatorClient::CoordinatorClient(CoordinatorClientOptions options, Instant now)
    : options_{std::move(options)},
      timings_{options_.timings},
      coordinator_{options_.seed_endpoint, options_.serves_seed, {}, {}, false},
      standbys_{options_.self.node.name, timings_.heartbeat_timeout, now},
      dials_{options_.seed},
      began_{now},
      ticked_{now} {}

ClientActions CoordinatorClient::received(const Frame& frame, Instant now) {
  ClientActions out;
  if (phase_ != LinkPhase::joined && phase_ != LinkPhase::joining) return out;
  if (phase_ == LinkPhase::joined) heard_ = now;
  std::visit([&](const auto& message) { on(frame, message, now, out); }, frame.message);
  return out;
}

bool CoordinatorClient::is_stale(const Frame& frame) const {
  if (planted::accept_stale_round) return false;
  return phase_ != LinkPhase::joined || frame.epoch.term != term_ ||
         frame.epoch.round < oldest_round_;
}

void CoordinatorClient::on(const Frame& frame, const Welcome& welcome, Instant now,
                           ClientActions& out) {
  if (frame.epoch.term < term_) {  // from a coordinator that doesn't know yet that it was replaced
    seek_again(backoff(), now, out);
    return;
  }
  const bool is_new = term_.number != 0 && frame.epoch.term != term_;
  phase_ = LinkPhase::joined;
  term_ = frame.epoch.term;
  oldest_round_ = std::min(epoch_.round, frame.epoch.round);
  timings_.heartbeat_timeout = welcome.heartbeat_timeout;
  timings_.lease = welcome.lease;
  standbys_.set_heartbeat_timeout(timings_.heartbeat_timeout);
  heartbeats_.set_stamp(welcome.stamp);
  heard_ = now;
  coordinator_.at = dials_.chosen();
  coordinator_.node = welcome.coordinator;
  coordinator_.has_closed = false;
  next_heartbeat_ = now;
  dials_.restart_pauses();
  last_failure_.clear();
  send_voters_to(has_coordinator(), out);
  if (is_new) {
    out.emplace_back(Tell{"the coordinator is now on " + welcome.coordinator + " (term " +
                          std::to_string(term_.number) + ", round " +
                          std::to_string(epoch_.round.value()) + ")"});
  } else if (standbys_.lost_at() != began_) {
    out.emplace_back(Tell{"in contact with the coordinator on " + welcome.coordinator + " again"});
  }
  if (is_new && !unsent_.failure) unsent_.failure = told_failure_.as_of(now);
  if (unsent_.failure) send(WorkerFailed{*unsent_.failure}, out);
  // What happened between the Join and its answer.
  const auto ended_as = state_ != joined_with_ ? state_ : NodeState::nothing;
  if (ended_as == NodeState::completed) send(Completed{place_.had_progress}, out);
  if (ended_as == NodeState::stopped) send(Stopped{place_.had_progress}, out);
  for (const int signo : unsent_.signals) send(SignalRequest{signo}, out);
  unsent_ = {};
  heartbeat(now, out);
}

void CoordinatorClient::on(const Frame& frame, const Assigned& assigned, Instant now,
                           ClientActions& out) {
  if (is_stale(frame) || has_workers()) return;
  heartbeats_.set_stamp(assigned.stamp);
  if (assigned.spare) {
    state_ = NodeState::nothing;
    standbys_.set(assigned.standbys);
    out.emplace_back(Tell{assigned.reason.empty()
                              ? "the job runs without this node: it waits as a spare"
                              : assigned.reason});
    return;
  }
  const bool is_repeated = frame.epoch == epoch_ && port_ != 0;
  if (!is_repeated) port_ = 0;
  if (frame.epoch != epoch_) told_failure_.reset();
  if (frame.epoch.round != epoch_.round || coordinator_.began_round.empty())
    coordinator_.began_round = coordinator_.node;
  epoch_ = frame.epoch;
  oldest_round_ = epoch_.round;
  state_ = NodeState::assigned;
  standbys_.set(assigned.standbys);
  place_ = {.epoch = epoch_,
            .node_rank = assigned.node_rank,
            .nodes = assigned.nodes,
            .established = assigned.established,
            .first_rank = assigned.first_rank,
            .world_size = assigned.world_size,
            .master = {},
            .ledger = assigned.ledger,
            .max_restarts = assigned.max_restarts,
            .reason = assigned.reason};
  if (assigned.node_rank == NodeRank{0} && !is_repeated) {
    out.emplace_back(OrderPort{epoch_.round});
  } else {
    send_ready(port_, now, out);
  }
}

ClientActions CoordinatorClient::port_reserved(std::uint16_t port, Instant now) {
  ClientActions out;
  port_ = port;
  if (state_ == NodeState::assigned && phase_ == LinkPhase::joined) send_ready(port, now, out);
  return out;
}

void CoordinatorClient::send_ready(std::uint16_t port, Instant now, ClientActions& out) {
  send(Ready{heartbeats_.send(now), heartbeats_.stamp(), port}, out);
}

void CoordinatorClient::on(const Frame& frame, const Start& start, Instant now,
                           ClientActions& out) {
  const bool is_ours = frame.epoch == epoch_ && state_ == NodeState::assigned;
  if (is_stale(frame) || (!is_ours && !planted::accept_stale_round) || has_workers()) return;
  place_.established = {};  // all members have answered
  lease_.drop();
  renew_lease(start.heartbeat, start.granted, out);
  if (!may_run(now)) {  // too old to be of use: the place is given back
    workers_ended(NodeState::stopped, false, out);
    send(Stopped{}, out);
    return;
  }
  state_ = NodeState::running;
  is_stop_ordered_ = false;
  place_.master = start.master;
  out.emplace_back(OrderRound{place_});
}

// Counted from the time at which the heartbeat was sent, by this clock: any delay of the answer
// only shortens the lease.
void CoordinatorClient::renew_lease(std::uint32_t heartbeat, Millis granted, ClientActions& out) {
  const auto sent = heartbeats_.sent_at(heartbeat);
  if (!sent || granted <= Millis{0} || !lease_.extend(*sent + granted)) return;
  out.emplace_back(SetLease{*lease_.end()});
}

void CoordinatorClient::on(const Frame& frame, const HeartbeatAck& ack, Instant now,
                           ClientActions& out) {
  if (is_stale(frame)) return;
  heartbeats_.note_stamp(ack.stamp);
  heartbeats_.answered(ack.heartbeat, now);
  // An expired lease is not renewed: its workers are being killed.
  if (has_workers() && may_run(now)) renew_lease(ack.heartbeat, ack.granted, out);
}

void CoordinatorClient::on(const Frame& frame, const Stop& stop, Instant now, ClientActions& out) {
  if (is_stale(frame)) return;
  told_failure_.note(stop, now);
  if (has_workers()) {
    is_stop_ordered_ = true;
    return out.push_back(OrderStop{stop});
  }
  if (state_ == NodeState::completed) out.emplace_back(StopOfCompleted{stop});
  if (state_ != NodeState::nothing) state_ = NodeState::stopped;
  send(Stopped{place_.had_progress}, out);
}

void CoordinatorClient::on(const Frame& frame, const Signal& signal, Instant, ClientActions& out) {
  if (!is_stale(frame) && has_workers()) out.emplace_back(OrderSignal{signal});
}

void CoordinatorClient::on(const Frame&, const Close& close, Instant, ClientActions& out) {
  phase_ = LinkPhase::ended;
  out.emplace_back(OrderClose{close});
  out.emplace_back(Hang{});
}

void CoordinatorClient::on(const Frame&, const Notice& notice, Instant, ClientActions& out) {
  const bool is_warning = notice.text.starts_with(kWarningNotice);
  out.emplace_back(Tell{notice.text.substr(is_warning ? kWarningNotice.size() : 0), is_warning});
}

void CoordinatorClient::on(const Frame& frame, const Probe& probe, Instant now,
                           ClientActions& out) {
  if (is_stale(frame)) return;
  heartbeats_.note_stamp(probe.stamp);
  heartbeat(now, out);
}

// Heartbeats sent before the doubt may be older than they look, so an answer to one proves nothing.
// A wall clock that was merely set costs one heartbeat; after a real pause the coordinator has
// given our place away and says so, or is unreachable.
ClientActions CoordinatorClient::clock_doubted(Instant now) {
  ClientActions out;
  if (phase_ == LinkPhase::ended || planted::trust_stopped_clocks) return out;
  heartbeats_.forget();
  const Instant end = now + timings_.confirmation();
  if (has_workers() && lease_.doubt(end)) out.emplace_back(SetLease{end});
  if (phase_ == LinkPhase::joined) heartbeat(now, out);
  return out;
}

ClientActions CoordinatorClient::worker_failed(const Failure& failure, Instant) {
  ClientActions out;
  if (phase_ == LinkPhase::joined)
    send(WorkerFailed{failure}, out);
  else
    unsent_.failure = failure;
  return out;
}

void CoordinatorClient::workers_ended(NodeState as, bool progress, ClientActions& out) {
  state_ = as;
  place_.had_progress = progress;
  lease_.drop();
  out.emplace_back(ClearLease{});
}

ClientActions CoordinatorClient::workers_completed(bool progress, Instant) {
  ClientActions out;
  if (!has_workers()) return out;
  workers_ended(NodeState::completed, progress, out);
  if (phase_ == LinkPhase::joined) send(Completed{progress}, out);
  return out;
}

ClientActions CoordinatorClient::workers_stopped(bool progress, Instant now) {
  ClientActions out;
  // Assigned: refers to the previous round, whose stop order reached the supervisor late. Nothing
  // of this round has begun.
  if (state_ == NodeState::nothing || state_ == NodeState::assigned) return out;
  workers_ended(NodeState::stopped, progress, out);
  if (phase_ == LinkPhase::joined) send(Stopped{progress}, out);
  if (give_up_when_empty_) give_up(give_up_when_empty_->why, give_up_when_empty_->text, out);
  consider_giving_up(now, out);
  return out;
}

ClientActions CoordinatorClient::signal_received(int signo) {
  ClientActions out;
  if (phase_ == LinkPhase::joined)
    send(SignalRequest{signo}, out);
  else if (std::ranges::find(unsent_.signals, signo) == unsent_.signals.end())
    unsent_.signals.push_back(signo);
  return out;
}

ClientActions CoordinatorClient::restart_asked() {
  ClientActions out;
  if (phase_ == LinkPhase::joined) send(RestartRequest{}, out);
  return out;
}

std::optional<LinkChanged> CoordinatorClient::take_link_change() {
  if (is_connected() == was_connected_) return std::nullopt;
  was_connected_ = is_connected();
  return LinkChanged{was_connected_};
}

ClientActions CoordinatorClient::leaves(const std::string& why, Instant) {
  ClientActions out;
  if (phase_ == LinkPhase::joined) send(Leave{why}, out);
  if (phase_ != LinkPhase::ended) out.emplace_back(Hang{});
  phase_ = LinkPhase::ended;
  return out;
}

ClientActions CoordinatorClient::tick(Instant now) {
  ClientActions out;
  const bool was_asleep = now - ticked_ > timings_.heartbeat_timeout / 2;
  ticked_ = now;
  if (phase_ == LinkPhase::ended) return out;
  // Our own pause is not silence of the coordinator: its frames of that time lie in the socket.
  if (was_asleep) heard_ = now;
  check_lease(now, out);
  switch (phase_) {
    case LinkPhase::joined:
      if (now - heard_ > timings_.heartbeat_timeout) {
        out.emplace_back(Hang{});
        lose_link("no traffic from it for " + describe(timings_.heartbeat_timeout), now, out);
      } else if (now >= next_heartbeat_) {
        heartbeat(now, out);
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
      if (now >= dials_.due()) dial_next(now, out);
      break;
    case LinkPhase::ended:
      break;
  }
  count_votes(now, out);
  send_voters_on(now, out);
  consider_giving_up(now, out);
  if (phase_ != LinkPhase::joined) tell_seeking(now, out);
  return out;
}

void CoordinatorClient::check_lease(Instant now, ClientActions& out) {
  if (!has_workers() || !lease_.is_over(now)) return;
  lease_.drop();  // the guardian keeps its copy and goes on killing
  out.emplace_back(OrderKill{
      lease_.is_doubted()
          ? "the clocks of this machine may have stood still, and the job's coordinator did not "
            "confirm the lease within " +
                describe(timings_.confirmation())
          : "no contact with the job's coordinator for " + describe(timings_.lease) +
                ": the lease is over"});
}

void CoordinatorClient::heartbeat(Instant now, ClientActions& out) {
  next_heartbeat_ = now + timings_.heartbeat_interval();
  send(Heartbeat{heartbeats_.send(now), heartbeats_.stamp()}, out);
}

void CoordinatorClient::send(Message message, ClientActions& out) const {
  out.emplace_back(Send{{{term_, epoch_.round}, std::move(message)}});
}

Instant CoordinatorClient::next_deadline() const {
  if (phase_ == LinkPhase::ended) return Instant::max();
  Instant next = ticked_ + timings_.heartbeat_timeout / 4;
  if (phase_ == LinkPhase::joined) next = std::min(next, next_heartbeat_);
  if (phase_ == LinkPhase::seeking) next = std::min(next, dials_.due());
  if (phase_ == LinkPhase::dialing || phase_ == LinkPhase::joining)
    next = std::min(next, link_deadline_);
  if (phase_ == LinkPhase::joining && !votes_.empty()) next = std::min(next, gives_vote_at_);
  if (lease_.end() && has_workers()) next = std::min(next, *lease_.end());
  return next;
}

std::string_view to_string(LinkPhase phase) {
  static constexpr EnumNames<LinkPhase, LinkPhase::ended> kNames{
      {"seeking", "dialing", "joining", "joined", "ended"}};
  return kNames[phase];
}

}  // namespace acc::rendezvous
