#include "common/endpoint.hpp"
#include "rendezvous/coordinator_client.hpp"

#include <algorithm>

// Elections, from one agent's point of view.
//
// After a loss all agents call the first standby (by ascending rank); a Join is the vote, valid as
// long as its connection. There are no separate election messages. A majority of the last round
// makes a standby coordinator.
//
// Votes gather at one standby although no two agents see the same: a standby that can't be reached
// or elected is passed over, the lost coordinator isn't called as a standby, and a standby that
// votes for another one redirects its callers there. The remaining case, a standby that can be
// reached but gets no majority, is solved by time: it is divided into election windows of 1.5 ×
// heartbeat timeout, and in every second one the calls begin at another standby.
namespace acc::rendezvous {

std::string address_text(const HostPort& place) { return join_host_port(place.host, place.port); }

Millis CoordinatorClient::window_length() const { return timings_.heartbeat_timeout * 3 / 2; }

std::size_t CoordinatorClient::election_window(Instant now) const {
  return static_cast<std::size_t>((now - lost_at_) / window_length());
}

// 0, 1, 0, 2, 0, 3 …: agents whose windows began at different times still meet at the first
// standby.
std::size_t CoordinatorClient::first_called(Instant now) const {
  const auto number = election_window(now);
  return number % 2 == 0 ? 0 : (number / 2 + 1) % standbys_.size();
}

// The standby to vote for: the one of this election_window, or the next that wasn't passed over.
// The own index means that this node waits for votes.
std::size_t CoordinatorClient::preferred_standby(Instant now) const {
  const auto own = own_standby();
  if (own && now < stands_until_) return *own;
  const auto size = standbys_.size();
  const auto first = first_called(now);
  for (std::size_t i = 0; i < size; ++i) {
    const auto index = (first + i) % size;
    const bool is_passed = passed_in_ == election_window(now) && passed_[index];
    if (index == own || (!is_passed && standbys_[index].at != coordinator_)) return index;
  }
  return (first + size - 1) % size;  // none left: all are tried again
}

void CoordinatorClient::pass_over(const HostPort& unreachable, Instant now) {
  if (passed_in_ != election_window(now)) passed_.reset();
  passed_in_ = election_window(now);
  const auto found = std::ranges::find(standbys_, unreachable, &Standby::at);
  if (found != standbys_.end()) passed_.set(static_cast<std::size_t>(found - standbys_.begin()));
}

Instant CoordinatorClient::window_end(Instant now) const {
  return lost_at_ + window_length() * ((now - lost_at_) / window_length() + 1);
}

std::optional<std::size_t> CoordinatorClient::own_standby() const {
  const auto found = std::ranges::find(standbys_, options_.self.node.name, &Standby::node);
  if (found == standbys_.end()) return std::nullopt;
  return static_cast<std::size_t>(found - standbys_.begin());
}

// Can the last round reach a majority without the lost coordinator? Two nodes can't.
bool CoordinatorClient::can_elect() const {
  if (options_.external_leader || epoch_.term.number == 0) return false;
  const bool coordinator_was_member =
      place_.nodes <= kMaxStandbys && standbys_.size() < place_.nodes;
  const auto others = place_.nodes - (coordinator_was_member ? 1 : 0);
  return others >= majority_of(place_.nodes);
}

// This node votes for another one: the votes it holds follow. Not immediately: if its own vote is
// refused, they are still here.
void CoordinatorClient::send_voters_on(Instant now, ClientActions& out) {
  if (phase_ != LinkPhase::joining || now < gives_vote_at_) return;
  send_voters_to(
      {Refusal::not_coordinator,
       "node " + options_.self.node.name + " votes for the one at " + address_text(dialed_),
       dialed_, false},
      out);
}

void CoordinatorClient::send_voters_to(const Refused& elsewhere, ClientActions& out) {
  ballot_.remove(PeerId{0});
  for (const PeerId peer : ballot_.peers()) out.emplace_back(RefuseVote{peer, elsewhere});
  ballot_.clear();
}

Refused CoordinatorClient::has_coordinator() const {
  return {Refusal::not_coordinator, "the coordinator is at " + address_text(coordinator_),
          coordinator_, false};
}

ClientActions CoordinatorClient::vote_received(PeerId peer, const Join& join,
                                               const std::string& address, Instant now) {
  ClientActions out;
  const auto refuse = [&](Refused refused) {
    out.emplace_back(RefuseVote{peer, std::move(refused)});
  };
  if (join.job != options_.self.job) {
    refuse({Refusal::wrong_job,
            "this agent belongs to job '" + join.job + "', the one at this address to job '" +
                options_.self.job + "'",
            {},
            true});
  } else if (phase_ == LinkPhase::ended) {
    refuse({Refusal::closed, "the job is over on node " + options_.self.node.name, {}, false});
  } else if (phase_ == LinkPhase::joined) {
    refuse(has_coordinator());
  } else if (join.epoch.term.number == 0 || !can_elect()) {
    refuse({Refusal::not_coordinator,
            "node " + options_.self.node.name + " seeks the coordinator itself",
            {},
            false});
  } else if (!own_standby() || join.epoch.round > epoch_.round) {
    refuse({Refusal::not_coordinator,
            "node " + options_.self.node.name + " is no standby of that round",
            {},
            false});
  } else {
    if (have_crossed(join)) {
      out.emplace_back(Hang{});
      phase_ = LinkPhase::seeking;
      stands_until_ = window_end(now);
      next_dial_ = now + backoff();
    }
    ballot_.add({peer, join, address});
    count_votes(now, out);
    send_voters_on(now, out);
  }
  return out;
}

// Two standbys vote for each other: the first of them withdraws its vote.
bool CoordinatorClient::have_crossed(const Join& theirs) const {
  const auto own = own_standby();
  if (phase_ != LinkPhase::joining || !own) return false;
  const auto other = std::ranges::find(standbys_, dialed_, &Standby::at);
  return other != standbys_.end() && other->node == theirs.node.name &&
         standbys_.begin() + static_cast<std::ptrdiff_t>(*own) < other;
}

ClientActions CoordinatorClient::vote_withdrawn(PeerId peer, Instant) {
  ballot_.remove(peer);
  return {};
}

void CoordinatorClient::count_votes(Instant now, ClientActions& out) {
  ballot_.remove(PeerId{0});
  const bool is_free = phase_ == LinkPhase::seeking || phase_ == LinkPhase::dialing;
  if (!is_free || coordinator_here_ || !can_elect() || !own_standby()) return;
  ballot_.add({PeerId{0}, make_join(), address_});
  auto result = ballot_.result(place_.node_rank.value() + 1);
  // In a round that this node doesn't know it has no rank, hence no term of its own.
  if (!result || result->last != epoch_) return;
  ballot_.clear();
  if (phase_ != LinkPhase::seeking) out.emplace_back(Hang{});
  coordinator_here_ = true;
  coordinator_ = standbys_[*own_standby()].at;
  out.emplace_back(Tell{
      "this node takes over as coordinator (term " + std::to_string(result->term.number) +
      ", round " + std::to_string(result->last.round.value()) + ") with " +
      std::to_string(result->votes.size()) + " of " + std::to_string(result->nodes) + " nodes"});
  out.emplace_back(TakeOver{std::move(*result)});
  phase_ = LinkPhase::seeking;
  dials_ = next_target_ = 0;
  dial_next(now, out);
}

}  // namespace acc::rendezvous
