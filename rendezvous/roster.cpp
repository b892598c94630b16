#include "rendezvous/roster.hpp"

#include "common/endpoint.hpp"
#include "common/exit_codes.hpp"
#include "rendezvous/planted.hpp"

#include <algorithm>

// Who may speak, authority and the clock. Joining stands in roster_join.cpp, how nodes get their
// ranks in roster_assign.cpp, the life of a round in roster_round.cpp.
namespace acc::rendezvous {

namespace {

constexpr Millis kShortestBeat{50};
constexpr Millis kShortestConfirmation{500};
constexpr Millis kFirstNotice{5'000};
constexpr Millis kLastCallCheck{50};
constexpr Millis kKillMargin{
    300};  // from the end of a lease until the guardian's SIGKILL has worked
constexpr Instant kNever = Instant::max();

}  // namespace

Millis Timings::beat() const { return std::max(dead / 5, kShortestBeat); }
Millis Timings::confirmation() const { return std::max<Millis>(dead / 2, kShortestConfirmation); }

Roster::Roster(RosterOptions options, Instant now)
    : options_{std::move(options)},
      random_{options_.seed},
      began_{now},
      phase_since_{now},
      last_arrival_{now},
      ticked_{now},
      epoch_zero_{now},
      next_notice_{now + kFirstNotice} {
  epoch_.term = options_.term;
}

Roster::Roster(RosterOptions options, const Win& win, Instant now, RosterActions& actions)
    : Roster{std::move(options), now} {
  adopt(win, now, actions);
}

RosterActions Roster::said(PeerId peer, const Frame& frame, Instant now) {
  RosterActions out;
  const auto found = by_peer_.find(peer);
  if (found == by_peer_.end() || phase_ == RosterPhase::closed ||
      phase_ == RosterPhase::stepped_down)
    return out;
  if (options_.has_witness && !has_authority(now)) return out;  // another one may act already
  const NodeIndex index = found->second;
  if (frame.epoch.term != epoch_.term && !planted::accept_stale_round) return out;
  nodes_[index]->heard = now;
  if (const auto place = place_of(index)) places_[*place].heard = now;
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
          if (is_old || !place_of(index)) {
            // Workers of a round that this node was not told of in time; now it may have a place.
            if (!place_of(index)) nodes_[index]->has_workers = false;
            consider_round(now, out);
            return;
          }
        }
        on(index, message, now, out);
      },
      frame.message);
  return out;
}

RosterActions Roster::left(PeerId peer, const std::string& why, Instant now) {
  RosterActions out;
  ballot_.remove(peer);
  const auto found = by_peer_.find(peer);
  if (found == by_peer_.end()) return out;
  const NodeIndex index = found->second;
  by_peer_.erase(found);
  nodes_[index]->peer.reset();
  const auto place = place_of(index);
  const bool in_round = phase_ == RosterPhase::assigning || phase_ == RosterPhase::running ||
                        phase_ == RosterPhase::stopping;
  if (place && in_round && !places_[*place].gone) {
    places_[*place].link_lost = now;
    places_[*place].why_gone = why;
    return out;
  }
  forget(index);
  return out;
}

RosterActions Roster::moved(const HostPort& to, Instant) {
  RosterActions out;
  if (has_round_ || phase_ == RosterPhase::closed) return out;
  const std::string where = join_host_port(to.host, to.port);
  auto peers = ballot_.peers();
  for (const auto& [peer, index] : by_peer_) peers.push_back(peer);
  for (const PeerId peer : peers) {
    refuse(peer,
           {Refusal::moved, "the job goes on elsewhere: its coordinator is at " + where, to, false},
           out);
  }
  step_down("the job has a coordinator already, at " + where, out);
  return out;
}

RosterActions Roster::tick(Instant now) {
  RosterActions out;
  // Were we asleep (a stopped process, a suspended machine), the beats of the others lie unread in
  // our sockets: nobody is called silent for our own pause.
  const bool was_asleep = now - ticked_ > options_.timings.dead / 2;
  ticked_ = now;
  quorum_cache_.reset();
  if (was_asleep) {
    for (auto& place : places_) place.heard = now;
    for (auto& node : nodes_) {
      if (node) node->heard = now;
    }
  }
  if (phase_ == RosterPhase::closed || phase_ == RosterPhase::stepped_down) return out;
  if (options_.has_witness && !has_authority(now)) return out;
  check_authority(now, out);
  if (phase_ == RosterPhase::stepped_down) return out;
  watch_places(now, out);
  if (phase_ == RosterPhase::stopping) after_stop(now, out);
  if (phase_ == RosterPhase::backing_off && now >= backoff_end_) begin_gathering(now);
  consider_round(now, out);
  if (phase_ == RosterPhase::gathering) tell_waiting(now, out);
  answer_inquiries(now, out);
  return out;
}

// Coarse: a tick that comes a little often costs a loop over the places.
Instant Roster::next_deadline() const {
  switch (phase_) {
    case RosterPhase::closed:
    case RosterPhase::stepped_down:
      return kNever;
    case RosterPhase::backing_off:
      return std::min(backoff_end_, ticked_ + options_.timings.beat());
    case RosterPhase::gathering:
      // Nothing is near while too few are here.
      if (places_.empty() && by_peer_.size() < options_.nodes_min)
        return std::min(next_notice_, ticked_ + options_.timings.dead / 4);
      return ticked_ + std::min<Millis>(options_.timings.beat() / 2, kLastCallCheck);
    default:
      return ticked_ + options_.timings.beat() / 2;
  }
}

bool Roster::is_member(PeerId peer) const {
  const auto found = by_peer_.find(peer);
  return found != by_peer_.end() && place_of(found->second).has_value();
}

// ---- authority ----

std::uint64_t Roster::stamp(Instant now) const {
  return static_cast<std::uint64_t>(
      std::chrono::duration_cast<std::chrono::nanoseconds>(now - epoch_zero_).count() + 1);
}

// The peer has seen what we wrote at that moment of our clock, so it was with us then. The time at
// which its word arrived proves nothing: it may have lain in the network while the peer left us.
void Roster::note_contact(Place& place, std::uint64_t echo, Instant now) {
  if (echo == 0 || echo > stamp(now)) return;
  const auto when = epoch_zero_ + std::chrono::duration_cast<Instant::duration>(
                                      std::chrono::nanoseconds{echo - 1});
  place.contact = std::max(place.contact, when);
  if (!is_confirmed_) confirm(now);
}

Instant Roster::nth_contact(std::uint32_t n) const {
  std::vector<Instant> contacts;
  contacts.reserve(places_.size());
  for (const auto& place : places_) contacts.push_back(place.contact);
  const auto nth = contacts.begin() + static_cast<std::ptrdiff_t>(n) - 1;
  std::ranges::nth_element(contacts, nth, std::greater{});
  return *nth;
}

// Since this moment of our clock so many members may have turned to somebody else that they could
// have elected him. Kept for a while in large rounds: an old value is only more careful.
Instant Roster::quorum_contact() const {
  constexpr std::size_t kSmall = 64;
  if (places_.size() > kSmall && quorum_cache_) return *quorum_cache_;
  quorum_cache_ = nth_contact(quorum_of(static_cast<std::uint32_t>(places_.size())));
  return *quorum_cache_;
}

// An elected coordinator is in office when a majority of the last round has answered it: from then
// on nobody before us can renew a lease, and those that he gave are over one lease later.
void Roster::confirm(Instant now) {
  if (nth_contact(majority_of(static_cast<std::uint32_t>(places_.size()))) < won_at_) return;
  is_confirmed_ = true;
  for (auto& place : places_)
    place.lease_end = std::max(place.lease_end, now + options_.timings.lease);
}

bool Roster::has_authority(Instant now) const {
  if (planted::elect_without_majority) return true;
  if (options_.has_witness)
    return now < leads_until_ && (!doubted_at_ || witnessed_at_ >= *doubted_at_);
  if (places_.empty()) return true;
  if (doubted_at_ && quorum_contact() < *doubted_at_) return false;
  return is_confirmed_ && now < quorum_contact() + options_.timings.lease;
}

Millis Roster::grant(Instant now) {
  if (planted::elect_without_majority) return options_.timings.lease;
  if (!has_authority(now)) return Millis{0};
  // It may outlive our time in office by one lease: for so long a successor waits (inherit).
  if (options_.has_witness) return options_.timings.lease;
  const auto left =
      std::chrono::duration_cast<Millis>(quorum_contact() + options_.timings.lease - now);
  return std::clamp(left, Millis{0}, options_.timings.lease);
}

Millis Roster::lease_slack() const { return options_.timings.lease / 10 + kKillMargin; }

void Roster::check_authority(Instant now, RosterActions& out) {
  if (!has_round_ || options_.has_witness || has_authority(now)) return;
  // A new round, or an election a moment ago: the answers are on their way.
  const auto since = std::max({phase_since_, won_at_, doubted_at_.value_or(won_at_)});
  if (now < since + options_.timings.lease) return;
  std::uint32_t heard = 0;
  for (const auto& place : places_) heard += now - place.contact < options_.timings.lease ? 1 : 0;
  step_down("only " + std::to_string(heard) + " of the " + std::to_string(places_.size()) +
                " nodes of the last round can be heard from here: this side is the minority, the "
                "others may go on without it",
            out);
}

void Roster::step_down(std::string why, RosterActions& out) {
  phase_ = RosterPhase::stepped_down;
  out.emplace_back(StepDown{std::move(why)});
}

// ---- helpers ----

std::optional<std::size_t> Roster::place_of(NodeIndex index) const {
  const auto found = place_by_node_.find(index);
  return found != place_by_node_.end() ? std::optional{found->second} : std::nullopt;
}

void Roster::send(const Node& node, Message message, RosterActions& out) const {
  if (node.peer) out.emplace_back(SendTo{*node.peer, {epoch_, std::move(message)}});
}

void Roster::send_all(Message message, RosterActions& out) const {
  SendAll all;
  all.peers.reserve(by_peer_.size());
  for (const auto& [peer, index] : by_peer_) all.peers.push_back(peer);
  all.frame = {epoch_, std::move(message)};
  if (!all.peers.empty()) out.emplace_back(std::move(all));
}

std::string Roster::name_of_place(std::size_t place) const {
  const auto& name = places_[place].name;
  const std::string rank = "node rank " + std::to_string(place);
  return name.empty() ? rank : "node " + name + " (" + rank + ")";
}

// splitmix64: the jitter only has to differ.
double Roster::roll() {
  std::uint64_t z = (random_ += 0x9e3779b97f4a7c15ULL);
  z = (z ^ (z >> 30U)) * 0xbf58476d1ce4e5b9ULL;
  z = (z ^ (z >> 27U)) * 0x94d049bb133111ebULL;
  return static_cast<double>((z ^ (z >> 31U)) >> 11U) * 0x1.0p-53;
}

std::string_view to_string(RosterPhase phase) {
  constexpr std::string_view kNames[] = {"gathering",   "assigning", "running",     "stopping",
                                         "backing_off", "closed",    "stepped_down"};
  return kNames[static_cast<std::size_t>(phase)];
}

}  // namespace acc::rendezvous
