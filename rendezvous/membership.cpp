#include "rendezvous/membership.hpp"

#include "common/endpoint.hpp"
#include "common/enum_names.hpp"
#include "common/exit_codes.hpp"
#include "rendezvous/planted.hpp"

#include <algorithm>
#include <utility>

// Dispatch of messages, authority and the clock. Joining is in membership_join.cpp, the assignment
// of ranks in membership_assign.cpp, the life of a round in membership_round.cpp.
namespace acc::rendezvous {

namespace {

constexpr Millis kFirstNotice{5'000};
constexpr Millis kLastCallCheck{50};
constexpr Instant kNever = Instant::max();

bool only_shows_life(const Message& message) {
  return std::holds_alternative<Heartbeat>(message) || std::holds_alternative<KvRestore>(message);
}

std::unique_ptr<Authority> authority_for(const MembershipOptions& options) {
  if (options.external_leader) return std::make_unique<ExternalAuthority>(options.timings);
  return std::make_unique<QuorumAuthority>(options.timings);
}

}  // namespace

Membership::Membership(MembershipOptions options, Instant now)
    : options_{std::move(options)},
      phase_since_{now},
      authority_{authority_for(options_)},
      began_{now},
      ticked_{now},
      next_notice_{now + kFirstNotice},
      random_{options_.seed} {
  epoch_.term = options_.term;
}

Membership::Membership(MembershipOptions options, const ElectionResult& result, Instant now,
                       MembershipActions& actions)
    : Membership{std::move(options), now} {
  take_over(result, now, actions);
}

MembershipActions Membership::said(PeerId peer, const Frame& frame, Instant now) {
  MembershipActions out;
  if (!authority_->may_speak(now)) {
    defer(peer, frame, now, out);
    return out;
  }
  take_deferred(now, out);
  receive(peer, frame, now, out);
  return out;
}

// A coordinator by etcd whose lease is in doubt may have a successor, so it acts on nothing. But it
// may be confirmed a moment later, and what its agents reported meanwhile they report only once.
void Membership::defer(PeerId peer, const Frame& frame, Instant now, MembershipActions& out) {
  const auto sender = nodes_.by_peer(peer);
  if (!sender) return;
  note_heard(*sender, now);
  if (only_shows_life(frame.message)) return;
  constexpr std::size_t kMostOfPeer = 8;
  const auto of_peer = std::ranges::count(deferred_, peer, &Deferred::peer);
  if (static_cast<std::size_t>(of_peer) < kMostOfPeer) {
    deferred_.push_back({peer, frame});
  } else {  // it joins again, and says then how it stands
    out.emplace_back(ClosePeer{peer});
  }
}

void Membership::take_deferred(Instant now, MembershipActions& out) {
  for (const auto& [peer, frame] : std::exchange(deferred_, {})) receive(peer, frame, now, out);
}

void Membership::note_heard(NodeIndex index, Instant now) {
  nodes_[index].heard = now;
  if (const auto rank = places_.of_node(index)) places_[*rank].heard = now;
}

// A large replay over a slow network may take longer than the silence after which its node would
// give up the link, and replay from the start over the next one.
void Membership::on(NodeIndex index, const KvRestore&, Instant now, MembershipActions& out) {
  auto& answered = nodes_[index].replay_answered;
  if (now - answered < options_.timings.heartbeat_timeout / 4) return;
  answered = now;
  send(index, Probe{stamp(now)}, out);
}

void Membership::receive(PeerId peer, const Frame& frame, Instant now, MembershipActions& out) {
  const auto sender = nodes_.by_peer(peer);
  if (!sender || phase_ == MembershipPhase::closed || phase_ == MembershipPhase::stepped_down)
    return;
  const NodeIndex index = *sender;
  if (frame.epoch.term != epoch_.term && !planted::accept_stale_round) return;
  note_heard(index, now);
  std::visit(
      [&](const auto& message) {
        using Kind = std::decay_t<decltype(message)>;
        constexpr bool is_of_a_round = std::is_same_v<Kind, Ready> ||
                                       std::is_same_v<Kind, WorkerFailed> ||
                                       std::is_same_v<Kind, Completed>;
        if (is_of_a_round && frame.epoch.round != epoch_.round && !planted::accept_stale_round)
          return;
        if constexpr (std::is_same_v<Kind, Stopped>) {
          const bool is_old = frame.epoch.round != epoch_.round && !planted::accept_stale_round;
          if (is_old || !places_.of_node(index)) {
            // Workers of a round whose end this node learnt too late; now it may get a place.
            if (!places_.of_node(index)) nodes_[index].has_workers = false;
            if (!planted::forget_waiting) consider_waiting(now, out);
            consider_round(now, out);
            return;
          }
        }
        on(index, message, now, out);
      },
      frame.message);
}

MembershipActions Membership::left(PeerId peer, const LinkLoss& loss, Instant now) {
  MembershipActions out;
  votes_.remove(peer);
  const auto sender = nodes_.by_peer(peer);
  if (!sender) return out;
  const NodeIndex index = *sender;
  if (loss.is_closed_by_peer)
    departures_.note(nodes_[index].join.node.name, "lost: " + loss.why,
                     now + options_.timings.return_limit());
  nodes_.disconnect(index);
  const auto place = places_.of_node(index);
  if (place && is_in_round() && !places_[*place].gone) {
    places_[*place].link_lost = now;
    places_[*place].why_gone = loss.why;
    return out;
  }
  forget(index);
  return out;
}

MembershipActions Membership::moved(const HostPort& to, Instant) {
  MembershipActions out;
  if (has_round_ || phase_ == MembershipPhase::closed) return out;
  const std::string where = join_host_port(to.host, to.port);
  auto peers = votes_.peers();
  for (const auto& [peer, index] : nodes_.connected()) peers.push_back(peer);
  for (const PeerId peer : peers) {
    refuse(peer,
           {Refusal::moved, "the job goes on elsewhere: its coordinator is at " + where, to, false},
           out);
  }
  step_down("the job has a coordinator already, at " + where, out);
  return out;
}

MembershipActions Membership::tick(Instant now) {
  MembershipActions out;
  // After a pause of this process (stopped, or the machine suspended) the others' heartbeats lie
  // unread in our sockets: no node counts as silent for that.
  const Instant last_tick = std::exchange(ticked_, now);
  const bool was_asleep = now - last_tick > options_.timings.heartbeat_timeout / 2;
  authority_->refresh();
  if (was_asleep) {
    for (auto& place : places_) place.heard = now;
    nodes_.hear_all(now);
    departures_.slept(last_tick, now + options_.timings.return_limit());
  }
  if (phase_ == MembershipPhase::closed || phase_ == MembershipPhase::stepped_down) return out;
  if (!authority_->may_speak(now)) return out;
  take_deferred(now, out);
  check_authority(now, out);
  if (phase_ == MembershipPhase::closed || phase_ == MembershipPhase::stepped_down) return out;
  disconnect_silent(now, out);
  watch_places(now, out);
  give_up_stopping(now, out);
  if (phase_ == MembershipPhase::stopping) after_stop(now, out);
  if (phase_ == MembershipPhase::backing_off && now >= phase_until_) begin_gathering(now);
  if (!planted::forget_waiting) consider_waiting(now, out);
  consider_round(now, out);
  if (phase_ == MembershipPhase::gathering) tell_waiting(now, out);
  answer_inquiries(now, out);
  return out;
}

// A coordinator that may not act (its etcd lease is over or in doubt) leaves due work undone, which
// must not make it due again immediately.
Instant Membership::next_deadline() const {
  const Instant next = next_event();
  return next > ticked_ ? next : ticked_ + options_.timings.heartbeat_interval() / 2;
}

// Coarse: an early tick costs only a loop over the places.
Instant Membership::next_event() const {
  switch (phase_) {
    case MembershipPhase::closed:
    case MembershipPhase::stepped_down:
      return kNever;
    case MembershipPhase::backing_off:
      return std::min(phase_until_, ticked_ + options_.timings.heartbeat_interval());
    case MembershipPhase::gathering:
      // Nothing is due soon while too few nodes are connected.
      if (places_.empty() && nodes_.connected().size() < options_.nodes_min)
        return std::min(next_notice_, ticked_ + options_.timings.heartbeat_timeout / 4);
      return ticked_ + std::min<Millis>(options_.timings.heartbeat_interval() / 2, kLastCallCheck);
    default:
      return ticked_ + options_.timings.heartbeat_interval() / 2;
  }
}

bool Membership::is_member(PeerId peer) const {
  const auto node = nodes_.by_peer(peer);
  return node && places_.of_node(*node);
}

bool Membership::is_dispensable() const {
  if (phase_ == MembershipPhase::closed || phase_ == MembershipPhase::stepped_down) return true;
  const bool has_others = std::ranges::any_of(nodes_.connected(), [this](const auto& entry) {
    return nodes_[entry.second].join.node.name != options_.name;
  });
  if (!has_others) return true;
  if (phase_ != MembershipPhase::running || places_.of_name(options_.name) || standbys_.empty())
    return false;
  return can_lose_coordinator(static_cast<std::uint32_t>(places_.size()), standbys_.size()) &&
         authority_->is_followed_by_all(round_started_);
}

// ---- authority ----

std::uint64_t Membership::stamp(Instant now) const {
  return static_cast<std::uint64_t>(
      std::chrono::duration_cast<std::chrono::nanoseconds>(now - began_).count() + 1);
}

// A stamp that was never issued proves nothing. Once a majority has answered an elected
// coordinator, no predecessor can renew a lease, and the leases it granted end one lease later.
void Membership::note_echo(std::size_t rank, std::uint64_t echo, Instant now) {
  if (echo == 0 || echo > stamp(now)) return;
  const auto when =
      began_ + std::chrono::duration_cast<Instant::duration>(std::chrono::nanoseconds{echo - 1});
  if (!authority_->echoed(rank, when)) return;
  for (auto& place : places_)
    place.lease_end = std::max(place.lease_end, now + options_.timings.lease);
}

void Membership::check_authority(Instant now, MembershipActions& out) {
  if (auto why = authority_->loss(now, phase_since_)) step_down(std::move(*why), out);
}

void Membership::step_down(std::string why, MembershipActions& out) {
  phase_ = MembershipPhase::stepped_down;
  out.emplace_back(StepDown{std::move(why)});
}

// ---- helpers ----

void Membership::send(NodeIndex index, Message message, MembershipActions& out) const {
  const auto& peer = nodes_[index].peer;
  if (peer) out.emplace_back(SendTo{*peer, {epoch_, std::move(message)}});
}

void Membership::send_all(Message message, MembershipActions& out) const {
  SendAll all;
  all.peers.reserve(nodes_.connected().size());
  for (const auto& [peer, index] : nodes_.connected()) all.peers.push_back(peer);
  all.frame = {epoch_, std::move(message)};
  if (!all.peers.empty()) out.emplace_back(std::move(all));
}

// splitmix64: the jitter only needs to vary.
double Membership::jitter_sample() {
  std::uint64_t z = (random_ += 0x9e3779b97f4a7c15ULL);
  z = (z ^ (z >> 30U)) * 0xbf58476d1ce4e5b9ULL;
  z = (z ^ (z >> 27U)) * 0x94d049bb133111ebULL;
  return static_cast<double>((z ^ (z >> 31U)) >> 11U) * 0x1.0p-53;
}

std::string_view to_string(MembershipPhase phase) {
  static constexpr EnumNames<MembershipPhase, MembershipPhase::stepped_down> kNames{
      {"gathering", "assigning", "running", "stopping", "backing_off", "closed", "stepped_down"}};
  return kNames[phase];
}

}  // namespace acc::rendezvous
