#include "common/exit_status.hpp"
#include "common/host_name.hpp"
#include "common/round_end.hpp"
#include "rendezvous/membership.hpp"
#include "rendezvous/planted.hpp"

#include <algorithm>
#include <utility>

// The life of a round, from the first Ready to the last Stopped, and what follows it.
namespace acc::rendezvous {

namespace {

constexpr Millis kReadyLimit{10'000};
constexpr std::size_t kTablePart = std::size_t{256} * 1024;  // bytes; texts are at most 3 × 4 KiB
constexpr std::size_t kRowOverhead = 20;
constexpr Millis kReconnectGrace{300};
/// Beyond the grace period: SIGKILL, giving up, and the report's way back. After that an agent that
/// doesn't answer is disconnected, and its lease is waited out.
constexpr Millis kStopMargin{25'000};

std::string on_node(const Failure& failure) {
  if (failure.kind == Failure::Kind::node_lost) return failure.node + " " + failure.cause;
  return "rank " + std::to_string(failure.rank.value()) + " on " +
         name_of_place(failure.node, failure.host) + " " + failure.cause;
}

constexpr const char* kJustChanged = "its coordinator has just changed: try again";

std::string why_no_restart_in(MembershipPhase phase) {
  switch (phase) {
    case MembershipPhase::gathering:
      return "no worker runs now: the job waits for its nodes, and all workers start anew with the "
             "next round";
    case MembershipPhase::assigning:
      return "its workers are just being started";
    case MembershipPhase::stopping:
    case MembershipPhase::running:
    case MembershipPhase::backing_off:
      return {};
    case MembershipPhase::closed:
      return "the job is over";
    case MembershipPhase::stepped_down:
      break;
  }
  return kJustChanged;
}

}  // namespace

void Membership::on(NodeIndex index, const Ready& ready, Instant now, MembershipActions& out) {
  const auto rank = places_.of_node(index);
  if (!rank) return;
  auto& place = places_[*rank];
  note_echo(*rank, ready.echo, now);
  const bool first = place.state == NodeState::assigned && place.ready_heartbeat == 0;
  place.ready_heartbeat = ready.heartbeat;
  // Once sent to other nodes, the address is final.
  if (*rank == 0 && ready.master_port != 0 && phase_ == MembershipPhase::assigning) {
    const auto& given = options_.policy->master;
    const auto& node = nodes_[index];
    master_.host = given && !given->host.empty() ? given->host
                   : !node.join.address.empty()  ? node.join.address
                                                 : node.address;
    master_.port = given && given->port != 0 ? given->port : ready.master_port;
  }
  if (phase_ == MembershipPhase::running) {  // it lost its connection between Ready and Start
    send_start(*rank, now, out);
    return;
  }
  if (phase_ != MembershipPhase::assigning || !first) return;
  if (++ready_ < places_.size()) return;
  if (options_.external_leader) commit_round(now, out);
  if (!options_.external_leader || planted::start_before_commit) start_round(now, out);
}

void Membership::start_round(Instant now, MembershipActions& out) {
  authority_->refresh();
  if (!authority_->may_act(now)) return begin_gathering(now);
  phase_ = MembershipPhase::running;
  phase_since_ = round_started_ = now;
  places_.establish();
  for (std::size_t i = 0; i < places_.size(); ++i) send_start(i, now, out);
}

void Membership::send_start(std::size_t rank, Instant now, MembershipActions& out) {
  auto& place = places_[rank];
  place.state = NodeState::running;
  const Millis granted = authority_->grant(now);
  place.lease_end = std::max(place.lease_end, now + granted);
  send(place.node, Start{master_, place.ready_heartbeat, granted}, out);
}

void Membership::on(NodeIndex index, const Heartbeat& heartbeat, Instant now,
                    MembershipActions& out) {
  HeartbeatAck ack{heartbeat.heartbeat, stamp(now), Millis{0}, 0};
  if (const auto rank = places_.of_node(index)) {
    auto& place = places_[*rank];
    note_echo(*rank, heartbeat.echo, now);
    const bool in_round = phase_ == MembershipPhase::running || phase_ == MembershipPhase::stopping;
    if (in_round && !place.gone && place.state == NodeState::running) {
      ack.granted = authority_->grant(now);
      place.lease_end = std::max(place.lease_end, now + ack.granted);
    }
  }
  send(index, ack, out);
  answer_inquiries(now, out);
}

void Membership::on(NodeIndex index, const WorkerFailed& failed, Instant now,
                    MembershipActions& out) {
  const auto rank = places_.of_node(index);
  if (!rank) return;
  const Instant at = now - failed.failure.ago;
  const bool is_older =
      phase_ == MembershipPhase::stopping && failures_.has_lost_node_after(at, round_started_);
  if ((!failures_.now && phase_ == MembershipPhase::running) || is_older) {
    failures_.now = failed.failure;
    if (places_[*rank].ranks.local(failed.failure.rank))
      failures_.now->node = nodes_[index].join.node.name;
    failures_.now_at = at;
  }
  if (failed.failure.kind == Failure::Kind::unkillable) {
    failures_.now_at = now - failed.failure.ago;
    note_first(failed.failure);
    failures_.cause->node = nodes_[index].join.node.name;
    close({Outcome::unkillable, to_int(ExitCode::unkillable)}, on_node(*failures_.cause), now, out);
    return;
  }
  if (phase_ == MembershipPhase::running)
    stop_round(Stop::Why::restart, on_node(*failures_.now), now, out);
}

void Membership::on(NodeIndex index, const Completed& completed, Instant now,
                    MembershipActions& out) {
  const auto rank = places_.of_node(index);
  if (!rank || places_[*rank].state != NodeState::running) return;
  failures_.progress = failures_.progress || completed.progress;
  places_[*rank].state = NodeState::completed;
  places_[*rank].has_completed = true;
  ++completed_;
  if (phase_ == MembershipPhase::stopping) return after_stop(now, out);
  if (phase_ == MembershipPhase::running && completed_ == places_.size())
    close({Outcome::succeeded, to_int(ExitCode::success)}, "", now, out);
}

void Membership::on(NodeIndex index, const Stopped& stopped, Instant now, MembershipActions& out) {
  const auto rank = places_.of_node(index);
  if (!rank) return;
  nodes_[index].has_workers = false;
  auto& place = places_[*rank];
  failures_.progress = failures_.progress || stopped.progress;
  if (phase_ == MembershipPhase::assigning) {  // it gave its place back before the start
    place.gone = true;
    return begin_gathering(now);
  }
  place.state = NodeState::stopped;
  if (phase_ == MembershipPhase::running) {
    failures_.set_node_lost(place.ranks.first, places_.describe(*rank), nodes_[index].join.host,
                            why_stopped(is_recovering(now)));
    failures_.now_at = now;
    stop_round(Stop::Why::restart, on_node(*failures_.now), now, out);
  }
  if (phase_ == MembershipPhase::stopping) after_stop(now, out);
}

std::string Membership::why_no_restart() const {
  if (end_signal_.signo != 0) return "the job is being stopped";
  if (phase_ == MembershipPhase::stopping && recovered_unconfirmed_) return kJustChanged;
  if (phase_ == MembershipPhase::stopping && failures_.now &&
      failures_.now->kind == Failure::Kind::cannot_start)
    return "its workers can't be started";
  return why_no_restart_in(phase_);
}

// The round ends without a failure, so that what follows is a restart that none of the budget is
// booked for, as on one node.
// One that is ending already is followed by another one, also without a restart left.
void Membership::on(NodeIndex index, const RestartRequest&, Instant now, MembershipActions& out) {
  auto why_not = why_no_restart();
  const bool is_refused = !why_not.empty();
  send(index, RestartReply{std::move(why_not)}, out);
  if (is_refused) return;
  if (phase_ == MembershipPhase::backing_off) {
    begin_gathering(now);
    return consider_round(now, out);
  }
  restart_is_due_ = true;
  std::string reason = "restart asked for on " + nodes_[index].join.node.name;
  if (phase_ == MembershipPhase::running)
    return stop_round(Stop::Why::membership, std::move(reason), now, out);
  if (!std::exchange(restart_is_asked_, true)) restart_reason_ = std::move(reason);
}

void Membership::on(NodeIndex index, const SignalRequest& request, Instant now,
                    MembershipActions& out) {
  const auto& name = nodes_[index].join.node.name;
  if (!ends_job(request.signo, options_.policy->preempt_signals))
    return send_all(Signal{request.signo}, out);
  // A repetition may come to all nodes: the first press tells who asked.
  const std::string by = request.signo == end_signal_.signo ? end_signal_.by : name;
  const bool is_first = end_signal_.signo == 0;
  if (is_first) {
    end_signal_.signo = request.signo;
    end_signal_.by = name;
    end_signal_.while_well = phase_ == MembershipPhase::running;
    restart_is_asked_ = false;  // a failure without a restart decides the exit code (P6)
  }
  const std::string reason = signal_name(request.signo) + " to the agent on " + by;
  if (phase_ == MembershipPhase::running || phase_ == MembershipPhase::stopping) {
    Stop stop;
    stop.why = Stop::Why::end;
    stop.signo = request.signo;
    stop.grace = options_.policy->grace_after(request.signo);
    stop.by = by;
    stop.reason = reason;
    send_all(std::move(stop), out);
    if (is_first)
      phase_until_ = now + options_.policy->preempt_grace + options_.policy->grace + kStopMargin;
    if (phase_ == MembershipPhase::running) {
      phase_ = MembershipPhase::stopping;
      phase_since_ = now;
      restart_reason_ = reason;
    }
    after_stop(now, out);
    return;
  }
  finish_by_signal(now, out);
}

void Membership::on(NodeIndex index, const Leave& leave, Instant now, MembershipActions& out) {
  const auto rank = places_.of_node(index);
  const auto peer = *nodes_[index].peer;
  departures_.note(nodes_[index].join.node.name, "left: " + leave.why, now);
  if (rank) {
    // Its workers are gone, by its own report.
    places_[*rank].state = NodeState::stopped;
    places_[*rank].why_gone = "left: " + leave.why;  // also where the round is being stopped
    const auto phase = phase_;
    if (phase == MembershipPhase::running || phase == MembershipPhase::assigning)
      mark_lost(*rank, "left: " + leave.why, now, out);
    places_[*rank].gone = true;
  }
  forget(index);
  out.emplace_back(ClosePeer{peer});
  if (phase_ == MembershipPhase::stopping) after_stop(now, out);
  consider_round(now, out);
}

void Membership::on(NodeIndex index, const TableRequest&, Instant, MembershipActions& out) {
  Table table;
  table.nodes = static_cast<std::uint32_t>(places_.size());
  std::size_t bytes = 0;
  for (std::size_t i = 0; i < places_.size(); ++i) {
    if (table.rows.size() == kMaxTableRows || bytes > kTablePart) {
      bytes = 0;
      send(index, std::move(table), out);
      table = Table{static_cast<std::uint32_t>(i), static_cast<std::uint32_t>(places_.size()), {}};
    }
    TableRow row;
    row.node = places_.name_of(i);
    row.ranks = places_[i].ranks;
    if (places_[i].node != kNoNode) {
      const auto& node = nodes_[places_[i].node];
      row.host = node.join.host;
      row.address = node.join.address.empty() ? node.address : node.join.address;
    }
    bytes += row.node.size() + row.host.size() + row.address.size() + kRowOverhead;
    table.rows.push_back(std::move(row));
  }
  send(index, std::move(table), out);
}

void Membership::stop_round(Stop::Why why, std::string reason, Instant now,
                            MembershipActions& out) {
  phase_ = MembershipPhase::stopping;
  phase_since_ = now;
  restart_reason_ = reason;
  stop_why_ = why;
  phase_until_ = now + options_.policy->grace + kStopMargin;
  Stop stop;
  stop.why = why;
  stop.grace = options_.policy->grace;
  stop.reason = std::move(reason);
  add_losses(stop);
  send_all(std::move(stop), out);
}

// Without the failed worker's output: the message goes to all nodes, and Close carries the output.
void Membership::add_losses(Stop& stop) const {
  const bool is_node = failures_.now && failures_.now->kind == Failure::Kind::node_lost;
  if (failures_.now && !is_node) {
    stop.failure = failures_.now;
    for (auto* text : {&stop.failure->error, &stop.failure->traceback, &stop.failure->last_lines,
                       &stop.failure->error_lines, &stop.failure->hint})
      text->clear();
  }
  for (std::size_t i = 0; i < places_.size(); ++i) {
    const auto& place = places_[i];
    if (!place.gone && !(is_node && place.ranks.first == failures_.now->rank)) continue;
    if (stop.lost.size() < kMaxSmallList) stop.lost.push_back({places_.name_of(i), place.ranks});
  }
}

void Membership::mark_lost(std::size_t rank, std::string why, Instant now, MembershipActions& out) {
  auto& place = places_[rank];
  place.gone = true;
  place.why_gone = why;
  place.link_lost.reset();
  const std::string words = places_.describe(rank) + " lost: " + why;
  if (!recovered_unconfirmed_) out.emplace_back(TellHere{words, true});
  if (phase_ == MembershipPhase::assigning) return begin_gathering(now);  // no worker runs yet
  if (phase_ == MembershipPhase::stopping) return after_stop(now, out);
  if (phase_ != MembershipPhase::running) return;
  failures_.now_at = now;
  stop_round(Stop::Why::restart, words, now, out);
}

void Membership::disconnect_silent(Instant now, MembershipActions& out) {
  const auto timeout = options_.timings.heartbeat_timeout;
  std::vector<NodeIndex> silent;
  for (const auto& [peer, index] : nodes_.connected()) {
    if (now - nodes_[index].heard > timeout) silent.push_back(index);
  }
  for (const NodeIndex index : silent) {
    const auto rank = places_.of_node(index);
    out.emplace_back(ClosePeer{*nodes_[index].peer});
    forget(index);
    if (!rank) continue;
    auto& place = places_[*rank];
    if (place.gone || place.link_lost) continue;
    place.link_lost = now - kReconnectGrace;
    place.why_gone = "no traffic for " + describe(timeout);
  }
}

void Membership::watch_places(Instant now, MembershipActions& out) {
  if (!is_in_round()) return;
  const auto timeout = options_.timings.heartbeat_timeout;
  const auto patience = std::min<Millis>(kReconnectGrace, timeout / 2);
  for (std::size_t i = 0; i < places_.size(); ++i) {
    auto& place = places_[i];
    const bool is_needed =
        !place.gone && place.state != NodeState::completed && place.state != NodeState::stopped;
    if (!is_needed) continue;
    const auto epoch = epoch_;
    if (place.link_lost && now >= *place.link_lost + patience) {
      mark_lost(i, place.why_gone.empty() ? "connection closed" : place.why_gone, now, out);
    } else if (place.node == kNoNode && recovering_until_ && now >= *recovering_until_) {
      mark_lost(i, "did not rejoin after the loss of the coordinator", now, out);
    }
    if (epoch_ != epoch || phase_ == MembershipPhase::closed) return;
  }
  if (phase_ == MembershipPhase::assigning &&
      now >= phase_since_ + std::max(kReadyLimit, timeout * 2))
    begin_gathering(now);
}

// Disconnects agents whose workers should be gone by now; their leases are then waited out.
void Membership::give_up_stopping(Instant now, MembershipActions& out) {
  for (std::size_t i = 0; i < places_.size(); ++i) {
    if (phase_ != MembershipPhase::stopping || now < phase_until_) return;
    auto& place = places_[i];
    if (place.gone || place.state != NodeState::running) continue;
    if (place.node != kNoNode) {
      if (const auto peer = nodes_[place.node].peer) out.emplace_back(ClosePeer{*peer});
      forget(place.node);
    }
    mark_lost(i, "did not stop its workers in time", now, out);
  }
}

bool Membership::is_dead(const Place& place, Instant now) const {
  if (place.state == NodeState::completed || place.state == NodeState::stopped) return true;
  if (!place.gone) return planted::forget_stopped;
  if (planted::skip_lease_wait) return true;
  return authority_->knows_older_leases() &&
         now >= place.lease_end + options_.timings.lease_slack();
}

bool Membership::everyone_is_dead(Instant now) const {
  return std::ranges::all_of(places_, [&](const Place& place) { return is_dead(place, now); });
}

// The root cause. Workers often notice a dead node before the coordinator, through their own
// connections to it: if that node was already silent when they failed, it is the cause.
Failure Membership::root_cause() const {
  const bool has_cause = failures_.now && failures_.now->kind != Failure::Kind::node_lost;
  std::optional<std::size_t> first;
  for (std::size_t i = 0; i < places_.size(); ++i) {
    const auto& place = places_[i];
    if (!place.gone || (has_cause && place.heard > failures_.now_at)) continue;
    if (!first || place.heard < places_[*first].heard) first = i;
  }
  if (!first) return failures_.now.value_or(Failure{});
  Failure failure;
  failure.kind = Failure::Kind::node_lost;
  failure.rank = places_[*first].ranks.first;
  failure.node = failure.host = places_.describe(*first);
  failure.cause = "lost: " + places_[*first].why_gone;
  failure.into_round = std::chrono::duration_cast<Millis>(failures_.now_at - round_started_);
  return failure;
}

void Membership::finish_by_signal(Instant now, MembershipActions& out) {
  close(end_by_signal(stop_request(end_signal_.signo, options_.policy->preempt_signals)),
        signal_name(end_signal_.signo) + " to the agent on " + end_signal_.by, now, out);
}

bool Membership::has_failed() const {
  return failures_.now || std::ranges::any_of(places_, &Place::gone);
}

void Membership::after_stop(Instant now, MembershipActions& out) {
  if (phase_ != MembershipPhase::stopping) return;
  if (recovered_unconfirmed_ && end_signal_.signo != 0) return finish_by_signal(now, out);
  // If the job ends, leases need not be waited out: no round follows.
  const bool may_go_on =
      end_signal_.signo != 0
          ? std::ranges::all_of(
                places_, [&](const Place& place) { return place.gone || is_dead(place, now); })
          : everyone_is_dead(now);
  if (!may_go_on) return;
  recovering_until_.reset();
  if (end_signal_.while_well) return finish_by_signal(now, out);
  if (recovered_unconfirmed_) return start_anew(now, out);
  if (!has_failed() || restart_is_asked_) {  // stopped because of other nodes, or asked to
    if (end_signal_.signo != 0) return finish_by_signal(now, out);
    begin_gathering(now);
    return consider_round(now, out);
  }
  note_first(root_cause());
  restart_reason_ = on_node(*failures_.cause);
  const auto next = what_follows(options_.policy->restart, ledger_, result_of_round(),
                                 stop_request(end_signal_.signo, options_.policy->preempt_signals));
  if (const auto* end = std::get_if<End>(&next)) {
    const bool by_signal = end->outcome == Outcome::stopped || end->outcome == Outcome::preempted;
    return by_signal ? finish_by_signal(now, out) : close(*end, restart_reason_, now, out);
  }
  restart_after(std::get<Restart>(next).delay, now, out);
}

RoundResult Membership::result_of_round() {
  const auto& failure = *failures_.cause;
  if (failure.kind == Failure::Kind::cannot_start) return RoundUnstartable{failure.code};
  const auto lived = std::chrono::duration_cast<Millis>(failures_.now_at - round_started_);
  return FailedRound{failure.exit_status(), std::max(lived, Millis{0}), failures_.progress,
                     jitter_sample(), failure.is_final};
}

void Membership::restart_after(Millis delay, Instant now, MembershipActions& out) {
  restart_is_due_ = true;
  if (delay == Millis{0}) {
    begin_gathering(now);
    return consider_round(now, out);
  }
  phase_ = MembershipPhase::backing_off;
  phase_since_ = now;
  phase_until_ = now + delay;
  send_all(Notice{"restarting all workers in " + describe(delay) + " (" +
                  restart_words(ledger_, options_.policy->restart.max_restarts) +
                  ") after: " + restart_reason_},
           out);
}

void Membership::note_first(Failure failure) {
  failures_.cause = std::move(failure);
  failures_.cause->round = epoch_.round;
  failures_.cause_at = failures_.now_at;
}

void Membership::close(const End& end, std::string reason, Instant now, MembershipActions& out) {
  const Outcome outcome = end.outcome;
  Close close;
  close.outcome = outcome;
  close.exit_code = end.exit_code;
  close.reason = std::move(reason);
  if (outcome != Outcome::succeeded && outcome != Outcome::stopped &&
      outcome != Outcome::preempted) {
    if (!failures_.cause && failures_.now) note_first(*failures_.now);
    close.first = failures_.cause;
    if (close.first)
      close.first->ago = std::chrono::duration_cast<Millis>(now - failures_.cause_at);
    if (close.first) close.finished = places_.completed(kMaxSmallList);
  }
  close.ledger = ledger_;
  over_ = close;
  phase_ = MembershipPhase::closed;
  end_inquiries(out);
  send_all(close, out);
  out.emplace_back(JobOver{std::move(close)});
}

}  // namespace acc::rendezvous
