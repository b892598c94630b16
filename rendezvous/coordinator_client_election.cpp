#include "common/endpoint.hpp"
#include "rendezvous/coordinator_client.hpp"

// Elections, from one agent's point of view.
//
// After a loss all agents call a standby (StandbyChoice); a Join is the vote, valid as long as its
// connection. There are no separate election messages. A majority of the last round makes a standby
// coordinator.
namespace acc::rendezvous {

std::string address_text(const HostPort& place) { return join_host_port(place.host, place.port); }

bool CoordinatorClient::can_elect() const {
  if (options_.external_leader || is_at_start()) return false;
  return can_lose_coordinator(place_.nodes, standbys_.all().size());
}

// This node votes for another one: the votes it holds follow. Not immediately: if its own vote is
// refused, they are still here.
void CoordinatorClient::send_voters_on(Instant now, ClientActions& out) {
  if (phase_ != LinkPhase::joining || now < gives_vote_at_) return;
  send_voters_to(
      {Refusal::not_coordinator,
       "node " + options_.self.node.name + " votes for the one at " + address_text(dials_.chosen()),
       dials_.chosen(), false},
      out);
}

void CoordinatorClient::send_voters_to(const Refused& elsewhere, ClientActions& out) {
  votes_.remove(PeerId{0});
  for (const PeerId peer : votes_.peers()) out.emplace_back(RefuseVote{peer, elsewhere});
  votes_.clear();
}

Refused CoordinatorClient::has_coordinator() const {
  return {Refusal::not_coordinator, "the coordinator is at " + address_text(coordinator_.at),
          coordinator_.at, false};
}

ClientActions CoordinatorClient::vote_received(PeerId peer, const Join& join,
                                               const std::string& address, Instant now) {
  ClientActions out;
  const auto refuse = [&](Refused refused) {
    out.emplace_back(RefuseVote{peer, std::move(refused)});
  };
  const auto is_no_candidate = [&](const std::string& why) {
    refuse({Refusal::not_coordinator, "node " + options_.self.node.name + why, {}, false});
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
    is_no_candidate(" seeks the coordinator itself");
  } else if (!standbys_.own() || join.epoch.round > epoch_.round) {
    is_no_candidate(" is no standby of that round");
  } else {
    if (have_crossed(join)) {
      out.emplace_back(Hang{});
      phase_ = LinkPhase::seeking;
      standbys_.stand(now);
      dials_.set_due(now + backoff());
    }
    votes_.add({peer, join, address});
    count_votes(now, out);
    send_voters_on(now, out);
  }
  return out;
}

// Two standbys vote for each other: the first of them withdraws its vote.
bool CoordinatorClient::have_crossed(const Join& theirs) const {
  return phase_ == LinkPhase::joining && standbys_.is_before(dials_.chosen(), theirs.node.name);
}

// In a small round the one that is no standby is the coordinator's; in a larger one any may be.
std::map<NodeRank, std::string> CoordinatorClient::names_of_round() const {
  std::map<NodeRank, std::string> names;
  for (const auto& standby : standbys_.all()) names[standby.node_rank] = standby.node;
  const bool is_one_missing = names.size() + 1 == place_.nodes && place_.nodes <= kMaxStandbys;
  if (!is_one_missing || coordinator_.began_round.empty()) return names;
  NodeRank missing{0};
  while (names.contains(missing)) missing = NodeRank{missing.value() + 1};
  names[missing] = coordinator_.began_round;
  return names;
}

void CoordinatorClient::count_votes(Instant now, ClientActions& out) {
  votes_.remove(PeerId{0});
  const bool is_free = phase_ == LinkPhase::seeking || phase_ == LinkPhase::dialing;
  if (!is_free || coordinator_.is_here || !can_elect() || !standbys_.own()) return;
  votes_.add({PeerId{0}, make_join(), address_});
  auto result = votes_.result(place_.node_rank.value() + 1);
  // In a round that this node doesn't know it has no rank, hence no term of its own.
  if (!result || result->last != epoch_) return;
  votes_.clear();
  result->names = names_of_round();
  if (coordinator_.has_closed) result->closed_by = coordinator_.node;
  if (phase_ != LinkPhase::seeking) out.emplace_back(Hang{});
  coordinator_.is_here = true;
  coordinator_.at = standbys_.all()[*standbys_.own()].at;
  out.emplace_back(Tell{
      "this node takes over as coordinator (term " + std::to_string(result->term.number) +
          ", round " + std::to_string(result->last.round.value()) + ") with " +
          std::to_string(result->votes.size()) + " of " + std::to_string(result->nodes) + " nodes",
      false, true});
  out.emplace_back(TakeOver{std::move(*result)});
  phase_ = LinkPhase::seeking;
  dials_.restart();
  dial_next(now, out);
}

}  // namespace acc::rendezvous
