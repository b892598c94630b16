#include "common/exit_codes.hpp"
#include "common/exit_status.hpp"
#include "rendezvous/planted.hpp"
#include "rendezvous/roster.hpp"

#include <algorithm>
#include <cerrno>
#include <csignal>

// The life of a round, from the first Ready to the last Stopped, and what follows it.
namespace acc::rendezvous {

namespace {

constexpr Millis kReadyLimit{10'000};
constexpr std::size_t kTablePart = std::size_t{256} * 1024;  // bytes; texts are at most 3 × 4 KiB
constexpr std::size_t kRowOverhead = 20;
constexpr Millis kReconnectGrace{300};
/// Beyond the grace: SIGKILL, give-up and the way back. Then an agent that doesn't answer is closed
/// out, and its lease is waited for.
constexpr Millis kStopMargin{25'000};

bool ends_job(const JobPolicy& policy, int signo) {
  return signo == SIGTERM || signo == SIGINT || signo == SIGHUP || signo == SIGQUIT ||
         std::ranges::count(policy.preempt_signals, signo) != 0;
}

std::optional<ExitStatus> status_of(const Failure& failure) {
  if (failure.kind == Failure::Kind::exited) return Exited{failure.code};
  if (failure.kind == Failure::Kind::signaled) return Signaled{failure.code, false};
  return std::nullopt;
}

int code_for_start_failure(int errnum) {
  if (errnum == ENOENT || errnum == ENOTDIR) return to_int(ExitCode::command_not_found);
  const bool resources =
      errnum == EAGAIN || errnum == ENOMEM || errnum == EMFILE || errnum == ENFILE;
  return to_int(resources ? ExitCode::resources : ExitCode::cannot_execute);
}

std::string on_node(const Failure& failure) {
  if (failure.kind == Failure::Kind::node_lost) return failure.node + " " + failure.cause;
  return "rank " + std::to_string(failure.rank.value()) + " on " +
         (failure.host.empty() ? failure.node : failure.host) + " " + failure.cause;
}

}  // namespace

void Roster::on(NodeIndex index, const Ready& ready, Instant now, RosterActions& out) {
  const auto rank = place_of(index);
  if (!rank) return;
  auto& place = places_[*rank];
  note_contact(place, ready.echo, now);
  const bool first = place.holding == Holding::assigned && place.ready_beat == 0;
  place.ready_beat = ready.beat;
  // Once others were told of it, it stays.
  if (*rank == 0 && ready.master_port != 0 && phase_ == RosterPhase::assigning) {
    const auto& given = options_.policy->master;
    const auto& node = *nodes_[index];
    master_.host = given && !given->host.empty() ? given->host
                   : !node.join.address.empty()  ? node.join.address
                                                 : node.address;
    master_.port = given && given->port != 0 ? given->port : ready.master_port;
  }
  if (phase_ == RosterPhase::running) {  // it lost its connection between Ready and Start
    send_start(*rank, now, out);
    return;
  }
  if (phase_ != RosterPhase::assigning || !first) return;
  if (++ready_ < places_.size()) return;
  options_.has_witness ? commit_round(now, out) : start_round(now, out);
}

void Roster::start_round(Instant now, RosterActions& out) {
  quorum_cache_.reset();
  if (!has_authority(now)) return begin_gathering(now);
  phase_ = RosterPhase::running;
  phase_since_ = round_started_ = now;
  for (std::size_t i = 0; i < places_.size(); ++i) send_start(i, now, out);
}

void Roster::send_start(std::size_t rank, Instant now, RosterActions& out) {
  auto& place = places_[rank];
  place.holding = Holding::running;
  const Millis granted = grant(now);
  place.lease_end = std::max(place.lease_end, now + granted);
  send(*nodes_[place.node], Start{master_, place.ready_beat, granted}, out);
}

void Roster::on(NodeIndex index, const Beat& beat, Instant now, RosterActions& out) {
  BeatAck ack{beat.beat, stamp(now), Millis{0}, static_cast<std::uint32_t>(by_peer_.size()),
              options_.nodes_min};
  if (const auto rank = place_of(index)) {
    auto& place = places_[*rank];
    note_contact(place, beat.echo, now);
    const bool in_round = phase_ == RosterPhase::running || phase_ == RosterPhase::stopping;
    if (in_round && !place.gone && place.holding == Holding::running) {
      ack.granted = grant(now);
      place.lease_end = std::max(place.lease_end, now + ack.granted);
    }
  }
  send(*nodes_[index], ack, out);
  answer_inquiries(now, out);
}

void Roster::on(NodeIndex index, const WorkerFailed& failed, Instant now, RosterActions& out) {
  const auto rank = place_of(index);
  if (!rank) return;
  if (!failure_ && phase_ == RosterPhase::running) {
    failure_ = failed.failure;
    failure_->node = nodes_[index]->join.node.name;
    failed_at_ = now - failed.failure.ago;
  }
  if (failed.failure.kind == Failure::Kind::unkillable) {
    failed_at_ = now - failed.failure.ago;
    note_first(failed.failure);
    first_failure_->node = nodes_[index]->join.node.name;
    close(Outcome::unkillable, to_int(ExitCode::unkillable), on_node(*first_failure_), now, out);
    return;
  }
  if (phase_ == RosterPhase::running) stop_round(Stop::Why::restart, on_node(*failure_), now, out);
}

void Roster::on(NodeIndex index, const Completed&, Instant now, RosterActions& out) {
  const auto rank = place_of(index);
  if (!rank || places_[*rank].holding != Holding::running) return;
  places_[*rank].holding = Holding::completed;
  ++completed_;
  if (phase_ == RosterPhase::stopping) return after_stop(now, out);
  if (phase_ == RosterPhase::running && completed_ == places_.size())
    close(Outcome::succeeded, 0, "", now, out);
}

void Roster::on(NodeIndex index, const Stopped& stopped, Instant now, RosterActions& out) {
  const auto rank = place_of(index);
  if (!rank) return;
  nodes_[index]->has_workers = false;
  auto& place = places_[*rank];
  progress_ = progress_ || stopped.progress;
  if (phase_ == RosterPhase::assigning) {  // it gave its place back before the start
    place.gone = true;
    return begin_gathering(now);
  }
  place.holding = Holding::stopped;
  if (phase_ == RosterPhase::running) {
    failure_ = Failure{};
    failure_->kind = Failure::Kind::node_lost;
    failure_->rank = place.first;
    failure_->node = name_of_place(*rank);
    failure_->host = nodes_[index]->join.host;
    failure_->cause = "stopped its workers: it had no contact with the coordinator for a lease";
    failed_at_ = now;
    stop_round(Stop::Why::restart, on_node(*failure_), now, out);
  }
  if (phase_ == RosterPhase::stopping) after_stop(now, out);
}

void Roster::on(NodeIndex index, const Wish& wish, Instant now, RosterActions& out) {
  const auto& name = nodes_[index]->join.node.name;
  if (!ends_job(*options_.policy, wish.signo)) {
    send_all(Signal{wish.signo, name}, out);
    return;
  }
  const bool again = stop_signal_ != 0;
  if (!again) {
    stop_signal_ = wish.signo;
    stopped_by_ = name;
  }
  const std::string reason = signal_name(wish.signo) + " to the agent on " + name;
  if (phase_ == RosterPhase::running || phase_ == RosterPhase::stopping) {
    const bool preempts = std::ranges::count(options_.policy->preempt_signals, wish.signo) != 0;
    Stop stop;
    stop.why = Stop::Why::end;
    stop.signo = wish.signo;
    stop.grace = preempts ? options_.policy->preempt_grace : options_.policy->grace;
    stop.by = name;
    stop.reason = reason;
    send_all(std::move(stop), out);
    if (phase_ == RosterPhase::running) {
      phase_ = RosterPhase::stopping;
      phase_since_ = now;
      restart_reason_ = reason;
      stop_deadline_ = now + options_.policy->preempt_grace + options_.policy->grace + kStopMargin;
    }
    after_stop(now, out);
    return;
  }
  finish_by_signal(now, out);
}

void Roster::on(NodeIndex index, const Leave& leave, Instant now, RosterActions& out) {
  const auto rank = place_of(index);
  const auto peer = *nodes_[index]->peer;
  if (rank) {
    // Its workers are gone: it says so itself.
    places_[*rank].holding = Holding::stopped;
    const auto phase = phase_;
    if (phase == RosterPhase::running || phase == RosterPhase::assigning)
      lose(*rank, "left: " + leave.why, now, out);
    places_[*rank].gone = true;
  }
  forget(index);
  out.emplace_back(ClosePeer{peer});
  if (phase_ == RosterPhase::stopping) after_stop(now, out);
}

void Roster::on(NodeIndex index, const TableRequest&, Instant, RosterActions& out) {
  Table table;
  table.nodes = static_cast<std::uint32_t>(places_.size());
  std::size_t bytes = 0;
  for (std::size_t i = 0; i < places_.size(); ++i) {
    if (table.rows.size() == kMaxTableRows || bytes > kTablePart) {
      bytes = 0;
      send(*nodes_[index], std::move(table), out);
      table = Table{static_cast<std::uint32_t>(i), static_cast<std::uint32_t>(places_.size()), {}};
    }
    TableRow row;
    row.node = places_[i].name;
    row.first_rank = places_[i].first;
    row.slots = places_[i].slots;
    if (places_[i].node != kNobody) {
      const auto& node = *nodes_[places_[i].node];
      row.host = node.join.host;
      row.address = node.join.address.empty() ? node.address : node.join.address;
    }
    bytes += row.node.size() + row.host.size() + row.address.size() + kRowOverhead;
    table.rows.push_back(std::move(row));
  }
  send(*nodes_[index], std::move(table), out);
}

void Roster::stop_round(Stop::Why why, std::string reason, Instant now, RosterActions& out) {
  phase_ = RosterPhase::stopping;
  phase_since_ = now;
  restart_reason_ = reason;
  stop_deadline_ = now + options_.policy->grace + kStopMargin;
  Stop stop;
  stop.why = why;
  stop.grace = options_.policy->grace;
  stop.reason = std::move(reason);
  add_losses(stop);
  send_all(std::move(stop), out);
}

// Not the failed worker's output: the message goes to all nodes, and the end of the job brings it.
void Roster::add_losses(Stop& stop) const {
  const bool is_node = failure_ && failure_->kind == Failure::Kind::node_lost;
  if (failure_ && !is_node) {
    stop.failure = failure_;
    for (auto* text : {&stop.failure->error, &stop.failure->traceback, &stop.failure->last_lines})
      text->clear();
  }
  for (const auto& place : places_) {
    if (!place.gone && !(is_node && place.first == failure_->rank)) continue;
    if (stop.lost.size() < kMaxSmallList)
      stop.lost.push_back({place.name, place.first, place.slots});
  }
}

void Roster::lose(std::size_t rank, std::string why, Instant now, RosterActions& out) {
  auto& place = places_[rank];
  place.gone = true;
  place.why_gone = why;
  place.link_lost.reset();
  const std::string words = name_of_place(rank) + " lost: " + why;
  if (!is_doubtful_) out.emplace_back(TellHere{words, true});
  if (phase_ == RosterPhase::assigning) return begin_gathering(now);  // no worker runs yet
  if (phase_ == RosterPhase::stopping) return after_stop(now, out);
  if (phase_ != RosterPhase::running) return;
  failed_at_ = now;
  stop_round(Stop::Why::restart, words, now, out);
}

void Roster::watch_places(Instant now, RosterActions& out) {
  const auto& dead = options_.timings.dead;
  const auto silence = "no traffic for " + describe(dead);
  std::vector<NodeIndex> silent;
  for (const auto& [peer, index] : by_peer_) {
    if (now - nodes_[index]->heard > dead) silent.push_back(index);
  }
  for (const NodeIndex index : silent) {
    const auto place = place_of(index);
    out.emplace_back(ClosePeer{*nodes_[index]->peer});
    forget(index);
    if (place && !places_[*place].gone && places_[*place].link_lost == std::nullopt) {
      places_[*place].link_lost = now - kReconnectGrace;
      places_[*place].why_gone = silence;
    }
  }
  const bool in_round = phase_ == RosterPhase::assigning || phase_ == RosterPhase::running ||
                        phase_ == RosterPhase::stopping;
  if (!in_round) return;
  const auto patience = std::min<Millis>(kReconnectGrace, dead / 2);
  for (std::size_t i = 0; i < places_.size(); ++i) {
    auto& place = places_[i];
    const bool is_needed =
        !place.gone && place.holding != Holding::completed && place.holding != Holding::stopped;
    if (!is_needed) continue;
    const auto epoch = epoch_;
    if (place.link_lost && now >= *place.link_lost + patience) {
      lose(i, place.why_gone.empty() ? "connection closed" : place.why_gone, now, out);
    } else if (place.node == kNobody && recovering_until_ && now >= *recovering_until_) {
      lose(i, "did not come back after the loss of the coordinator", now, out);
    }
    if (epoch_ != epoch || phase_ == RosterPhase::closed) return;
  }
  if (phase_ == RosterPhase::assigning && now >= phase_since_ + std::max(kReadyLimit, dead * 2))
    begin_gathering(now);
  if (phase_ != RosterPhase::stopping || now < stop_deadline_) return;
  for (std::size_t i = 0; i < places_.size(); ++i) {
    auto& place = places_[i];
    if (place.gone || place.holding != Holding::running) continue;
    if (place.node != kNobody) {
      if (const auto peer = nodes_[place.node]->peer) out.emplace_back(ClosePeer{*peer});
      forget(place.node);
    }
    lose(i, "did not stop its workers in time", now, out);
    if (phase_ != RosterPhase::stopping) return;
  }
}

bool Roster::is_dead(const Place& place, Instant now) const {
  if (place.holding == Holding::completed || place.holding == Holding::stopped) return true;
  if (!place.gone) return planted::forget_stopped;
  if (planted::skip_lease_wait) return true;
  return is_confirmed_ && now >= place.lease_end + lease_slack();
}

bool Roster::everyone_is_dead(Instant now) const {
  return std::ranges::all_of(places_, [&](const Place& place) { return is_dead(place, now); });
}

// The root cause. Workers often notice a dead node before we do, by their own connections to it:
// if it had fallen silent when they failed, it is to blame.
Failure Roster::blame() const {
  const bool has_cause = failure_ && failure_->kind != Failure::Kind::node_lost;
  const Place* first = nullptr;
  for (const auto& place : places_) {
    if (!place.gone || (has_cause && place.heard > failed_at_)) continue;
    if (first == nullptr || place.heard < first->heard) first = &place;
  }
  if (first == nullptr) return failure_.value_or(Failure{});
  Failure failure;
  failure.kind = Failure::Kind::node_lost;
  failure.rank = first->first;
  failure.node = failure.host = name_of_place(static_cast<std::size_t>(first - places_.data()));
  failure.cause = "lost: " + first->why_gone;
  failure.into_round = std::chrono::duration_cast<Millis>(failed_at_ - round_started_);
  return failure;
}

void Roster::finish_by_signal(Instant now, RosterActions& out) {
  const bool preempts = std::ranges::count(options_.policy->preempt_signals, stop_signal_) != 0;
  const std::string reason = signal_name(stop_signal_) + " to the agent on " + stopped_by_;
  if (preempts) return close(Outcome::preempted, to_int(ExitCode::requeue), reason, now, out);
  close(Outcome::stopped, 128 + stop_signal_, reason, now, out);
}

void Roster::after_stop(Instant now, RosterActions& out) {
  if (phase_ != RosterPhase::stopping) return;
  if (is_doubtful_ && stop_signal_ != 0) return finish_by_signal(now, out);
  // Before an end nobody waits for leases: no round follows.
  const bool may_go_on =
      stop_signal_ != 0
          ? std::ranges::all_of(
                places_, [&](const Place& place) { return place.gone || is_dead(place, now); })
          : everyone_is_dead(now);
  if (!may_go_on) return;
  recovering_until_.reset();
  if (stop_signal_ != 0) return finish_by_signal(now, out);
  if (is_doubtful_) return start_anew(now, out);
  if (membership_change_ && !failure_ &&
      std::ranges::none_of(places_, [](const Place& place) { return place.gone; })) {
    begin_gathering(now);
    return consider_round(now, out);
  }
  note_first(blame());
  restart_reason_ = on_node(*first_failure_);
  if (first_failure_->kind == Failure::Kind::cannot_start) {
    return close(Outcome::cannot_start, code_for_start_failure(first_failure_->code),
                 restart_reason_, now, out);
  }
  const auto status = status_of(*first_failure_);
  if (first_failure_->is_final)
    return close(Outcome::never_retry, shell_code(status.value_or(Exited{1})), restart_reason_, now,
                 out);
  const auto lived = std::chrono::duration_cast<Millis>(failed_at_ - round_started_);
  const auto decision = decide_restart(options_.policy->restart, ledger_,
                                       {status, std::max(lived, Millis{0}), progress_, roll()});
  const int code = status ? shell_code(*status) : to_int(ExitCode::nodes_missing);
  switch (decision.verdict) {
    case RestartVerdict::spent:
      return close(Outcome::failed, code, restart_reason_, now, out);
    case RestartVerdict::never_retry:
      return close(Outcome::never_retry, code, restart_reason_, now, out);
    case RestartVerdict::no_progress:
      return close(Outcome::no_progress, to_int(ExitCode::hopeless), restart_reason_, now, out);
    case RestartVerdict::restart:
      break;
  }
  restart_is_due_ = true;
  if (decision.delay > Millis{0}) {
    phase_ = RosterPhase::backing_off;
    phase_since_ = now;
    backoff_end_ = now + decision.delay;
    send_all(Notice{"restarting all workers in " + describe(decision.delay) + " (restart " +
                    std::to_string(ledger_.budget_used) + " of " +
                    std::to_string(options_.policy->restart.max_restarts) +
                    ") after: " + restart_reason_},
             out);
    return;
  }
  begin_gathering(now);
  consider_round(now, out);
}

void Roster::note_first(Failure failure) {
  first_failure_ = std::move(failure);
  first_failure_->round = epoch_.round;
  first_failed_at_ = failed_at_;
}

void Roster::close(Outcome outcome, int exit_code, std::string reason, Instant now,
                   RosterActions& out) {
  Close close;
  close.outcome = outcome;
  close.exit_code = exit_code;
  close.reason = std::move(reason);
  if (outcome != Outcome::succeeded && outcome != Outcome::stopped &&
      outcome != Outcome::preempted) {
    if (!first_failure_ && failure_) note_first(*failure_);
    close.first = first_failure_;
    if (close.first) close.first->ago = std::chrono::duration_cast<Millis>(now - first_failed_at_);
  }
  close.ledger = ledger_;
  over_ = close;
  phase_ = RosterPhase::closed;
  end_inquiries(out);
  send_all(close, out);
  out.emplace_back(JobOver{std::move(close)});
}

}  // namespace acc::rendezvous
