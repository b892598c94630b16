#include "rendezvous/membership.hpp"
#include "rendezvous/planted.hpp"

#include <algorithm>
#include <utility>

// Permission to write. A worker asks before it makes a checkpoint valid, and this coordinator's own
// belief is not an answer: it may have been frozen together with the worker while its successor
// began the next round. Each answer therefore waits for a proof that is younger than the question:
// a quorum that echoes a stamp written after it (etcd: a renewal requested after it).
namespace acc::rendezvous {

bool Membership::may_write(PeerId peer, Round round) const {
  const bool has_workers =
      phase_ == MembershipPhase::running || phase_ == MembershipPhase::stopping;
  if (!has_workers || round != epoch_.round) return false;
  const auto node = nodes_.by_peer(peer);
  const auto rank = node ? places_.of_node(*node) : std::nullopt;
  return rank && !places_[*rank].gone && places_[*rank].state == NodeState::running;
}

MembershipActions Membership::asked_current(PeerId peer, Round round, std::uint64_t id,
                                            Instant now) {
  MembershipActions out;
  const Inquiries::Inquiry inquiry{peer, id, now};
  if (!may_write(peer, round)) {
    reply(inquiry, std::nullopt, out);
  } else if (planted::answer_from_belief) {
    reply(inquiry, options_.timings.lease, out);
  } else {
    inquiries_.add(inquiry);
    if (!inquiries_.has_probe()) probe(now, out);
  }
  return out;
}

MembershipActions Membership::clock_doubted(Instant now) {
  MembershipActions out;
  if (phase_ == MembershipPhase::closed || phase_ == MembershipPhase::stepped_down ||
      planted::trust_stopped_clocks)
    return out;
  authority_->doubt(now);
  probe(now, out);
  if (inquiries_.empty()) inquiries_.forget_probe();
  return out;
}

void Membership::probe(Instant now, MembershipActions& out) {
  if (options_.external_leader) return;  // etcd's lease is renewed often enough
  inquiries_.probed(now);
  send_all(Probe{stamp(now)}, out);
}

void Membership::answer_inquiries(Instant now, MembershipActions& out) {
  if (inquiries_.empty() || places_.empty()) return;
  const Instant proof = authority_->proved_at();
  if (authority_->may_act(now)) {
    const Millis granted = authority_->grant(now);
    for (const auto& inquiry : inquiries_.take_answered(proof)) {
      const bool may = may_write(inquiry.peer, epoch_.round);
      if (may) {
        auto& place = places_[*places_.of_node(*nodes_.by_peer(inquiry.peer))];
        place.lease_end = std::max(place.lease_end, now + granted);
      }
      reply(inquiry, may ? std::optional{granted} : std::nullopt, out);
    }
  }
  if (inquiries_.empty()) {
    inquiries_.forget_probe();
  } else if (inquiries_.needs_probe(proof, now, options_.timings.heartbeat_interval())) {
    probe(now, out);
  }
}

// The round ended, or another one began.
void Membership::end_inquiries(MembershipActions& out) {
  for (const auto& inquiry : inquiries_.take_all()) reply(inquiry, std::nullopt, out);
}

void Membership::reply(const Inquiries::Inquiry& inquiry, std::optional<Millis> granted,
                       MembershipActions& out) const {
  KvReply reply;
  reply.id = inquiry.id;
  reply.status = granted ? KvReply::Status::ok : KvReply::Status::wrong_round;
  reply.number = granted ? granted->count() : 0;
  out.emplace_back(SendTo{inquiry.peer, {epoch_, std::move(reply)}});
}

}  // namespace acc::rendezvous
