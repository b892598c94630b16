#include "rendezvous/planted.hpp"
#include "rendezvous/roster.hpp"

#include <algorithm>
#include <utility>

// Which round may write. A worker asks before it makes a checkpoint valid, and the answer must not
// be this coordinator's mere belief: it may have been frozen together with the worker while its
// successor began the next round. So each answer waits for a proof that is younger than the
// question: a quorum that echoes a stamp written after it (etcd: a renewal asked for after it).
namespace acc::rendezvous {

namespace {

constexpr std::size_t kMostInquiries = 4096;

}  // namespace

bool Roster::may_write(PeerId peer, Round round) const {
  const bool has_workers = phase_ == RosterPhase::running || phase_ == RosterPhase::stopping;
  if (!has_workers || round != epoch_.round) return false;
  const auto found = by_peer_.find(peer);
  const auto rank = found != by_peer_.end() ? place_of(found->second) : std::nullopt;
  return rank && !places_[*rank].gone && places_[*rank].holding == Holding::running;
}

RosterActions Roster::asked_current(PeerId peer, Round round, std::uint64_t id, Instant now) {
  RosterActions out;
  if (!may_write(peer, round)) {
    reply_current(peer, id, std::nullopt, out);
  } else if (planted::answer_from_belief) {
    reply_current(peer, id, options_.timings.lease, out);
  } else if (inquiries_.size() < kMostInquiries) {
    inquiries_.push_back({peer, id, now});
    if (!probed_at_) probe(now, out);
  }  // beyond that the agent's deadline answers
  return out;
}

RosterActions Roster::clock_doubted(Instant now) {
  RosterActions out;
  if (phase_ == RosterPhase::closed || phase_ == RosterPhase::stepped_down ||
      planted::trust_stopped_clocks)
    return out;
  doubted_at_ = now;
  probe(now, out);
  if (inquiries_.empty()) probed_at_.reset();  // the next question needs a younger one
  return out;
}

// Since this moment of our clock so many follow us that nobody else can be coordinator.
Instant Roster::proved_at() {
  if (options_.has_witness) return witnessed_at_;
  quorum_cache_.reset();
  return quorum_contact();
}

void Roster::probe(Instant now, RosterActions& out) {
  if (options_.has_witness) return;  // etcd is asked often enough
  probed_at_ = now;
  send_all(Probe{stamp(now)}, out);
}

void Roster::answer_inquiries(Instant now, RosterActions& out) {
  if (inquiries_.empty() || places_.empty()) return;
  const Instant proof = proved_at();
  if (has_authority(now)) {
    const Millis granted = grant(now);
    const auto is_answered = [&](const Inquiry& inquiry) {
      if (inquiry.asked > proof) return false;
      const bool may = may_write(inquiry.peer, epoch_.round);
      if (may) {
        auto& place = places_[*place_of(by_peer_.at(inquiry.peer))];
        place.lease_end = std::max(place.lease_end, now + granted);
      }
      reply_current(inquiry.peer, inquiry.id, may ? std::optional{granted} : std::nullopt, out);
      return true;
    };
    std::erase_if(inquiries_, is_answered);
  }
  // Those that came while a probe was on its way need one of their own; and one may get lost.
  const bool is_due = probed_at_ && (proof >= *probed_at_ ||
                                     now >= *probed_at_ + options_.timings.beat());
  if (inquiries_.empty()) {
    probed_at_.reset();
  } else if (is_due || !probed_at_) {
    probe(now, out);
  }
}

// Another round, or none.
void Roster::end_inquiries(RosterActions& out) {
  for (const auto& inquiry : std::exchange(inquiries_, {}))
    reply_current(inquiry.peer, inquiry.id, std::nullopt, out);
  probed_at_.reset();
}

void Roster::reply_current(PeerId peer, std::uint64_t id, std::optional<Millis> granted,
                           RosterActions& out) const {
  KvReply reply;
  reply.id = id;
  reply.status = granted ? KvReply::Status::ok : KvReply::Status::wrong_round;
  reply.number = granted ? granted->count() : 0;
  out.emplace_back(SendTo{peer, {epoch_, std::move(reply)}});
}

}  // namespace acc::rendezvous
