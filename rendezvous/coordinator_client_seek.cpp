#include "rendezvous/coordinator_client.hpp"

#include <algorithm>
#include <utility>

// Finding a coordinator: the first one by its address, a lost one again, or its successor by votes.
// The choice of the vote is in coordinator_client_election.cpp.
namespace acc::rendezvous {

namespace {

constexpr Millis kFirstTell{5'000};
constexpr Millis kTellEvery{30'000};

}  // namespace

ClientActions CoordinatorClient::begin(Instant now) {
  ClientActions out;
  ticked_ = began_ = now;
  standbys_.lost(now);
  next_tell_ = now + kFirstTell;
  dial_next(now, out);
  return out;
}

Join CoordinatorClient::make_join() const {
  Join join = options_.self;
  if (join.address.empty()) join.address = address_;
  join.state = state_;
  join.epoch = epoch_;
  join.node_rank = place_.node_rank;
  join.first_rank = place_.first_rank;
  join.nodes = place_.nodes;
  join.established = place_.established;
  join.ledger = place_.ledger;
  join.vote = term_;
  return join;
}

std::vector<HostPort> CoordinatorClient::targets(Instant now) const {
  if (coordinator_.is_here) return {coordinator_.at};
  std::vector<HostPort> list;
  const auto add = [&](const HostPort& to) {
    if (to.port != 0 && std::ranges::find(list, to) == list.end()) list.push_back(to);
  };
  if (can_elect()) std::ranges::for_each(standbys_.to_call(coordinator_.at, now), add);
  const bool is_own_home = options_.serves_seed && !coordinator_.is_here;
  if (!standbys_.is_own(coordinator_.at) &&
      !(is_own_home && coordinator_.at == options_.seed_endpoint))
    add(coordinator_.at);
  if (!is_own_home) add(options_.seed_endpoint);
  // One of them may be the coordinator by now, or know it, when etcd is unreachable or a spare's
  // coordinator is lost.
  if (options_.external_leader || is_at_start()) std::ranges::for_each(standbys_.others(), add);
  return list;
}

void CoordinatorClient::dial_next(Instant now, ClientActions& out) {
  const auto is_first = dials_.choose(targets(now), !coordinator_.is_here);
  if (!is_first) {  // this node is the only candidate left
    dials_.set_due(now + DialSequence::kLongestBackoff);
    phase_ = LinkPhase::seeking;
    return;
  }
  const auto limit =
      dials_.limit(is_at_start(), *is_first, timings_.heartbeat_timeout, heartbeats_.round_trip());
  phase_ = LinkPhase::dialing;
  link_deadline_ = now + 4 * limit + Millis{500};  // the dialer keeps its own limits
  out.emplace_back(DialTo{dials_.chosen(), coordinator_.is_here, limit});
}

ClientActions CoordinatorClient::link_up(const std::string& local_address, Instant now) {
  ClientActions out;
  if (phase_ != LinkPhase::dialing) return out;
  phase_ = LinkPhase::joining;
  if (!local_address.empty()) address_ = local_address;
  gives_vote_at_ = now + timings_.heartbeat_timeout / 5;
  // If the target is not coordinator yet, the Join waits as a vote, until the next election window.
  link_deadline_ =
      can_elect() ? std::max(standbys_.window_end(now), now + timings_.heartbeat_timeout / 2)
                  : now + std::max<Millis>(timings_.heartbeat_timeout, DialSequence::kLongestLimit);
  joined_with_ = state_;
  out.emplace_back(Send{{{term_, epoch_.round}, make_join()}});
  return out;
}

ClientActions CoordinatorClient::dial_failed(const DialFailure& failure, Instant now) {
  ClientActions out;
  if (phase_ != LinkPhase::dialing) return out;
  last_failure_ = failure.what;
  if (failure.not_authentic && is_at_start()) {
    give_up(GiveUp::Why::not_authentic, failure.what, out);
    return out;
  }
  phase_ = LinkPhase::seeking;
  dials_.failed();
  standbys_.pass_over(dials_.chosen(), now);
  dials_.set_due(dials_.has_untried(targets(now)) ? now : now + backoff());
  count_votes(now, out);
  return out;
}

void CoordinatorClient::seek_again(Millis delay, Instant now, ClientActions& out) {
  out.emplace_back(Hang{});
  phase_ = LinkPhase::seeking;
  dials_.failed();
  dials_.set_due(now + delay);
  count_votes(now, out);
}

ClientActions CoordinatorClient::link_lost(const LinkLoss& loss, Instant now) {
  ClientActions out;
  if (phase_ == LinkPhase::ended || phase_ == LinkPhase::seeking) return out;
  if (phase_ == LinkPhase::joined) {
    coordinator_.has_closed = loss.is_closed_by_peer;
    lose_link(loss.why, now, out);
    return out;
  }
  last_failure_ = loss.why;
  phase_ = LinkPhase::seeking;
  if (loss.not_authentic && is_at_start()) {
    give_up(GiveUp::Why::not_authentic, address_text(dials_.chosen()) + " " + loss.why, out);
    return out;
  }
  dials_.failed();
  dials_.set_due(now + backoff());
  count_votes(now, out);
  return out;
}

void CoordinatorClient::begin_search(Instant now) {
  phase_ = LinkPhase::seeking;
  standbys_.lost(now);
  standbys_.stand_no_more();
  dials_.set_due(now);
  dials_.restart();
  next_tell_ = now + kFirstTell;
}

void CoordinatorClient::lose_link(const std::string& why, Instant now, ClientActions& out) {
  begin_search(now);
  last_failure_ = why;
  std::string text = "lost the coordinator at " + address_text(coordinator_.at) + ": " + why;
  if (has_workers() && lease_.end() && !is_stop_ordered_) {
    const auto left = std::chrono::duration_cast<Millis>(*lease_.end() - now);
    text += "; the workers here go on for " + describe(std::max(left, Millis{0})) +
            " unless it or its successor is found";
  }
  out.emplace_back(Tell{std::move(text), true});
  dial_next(now, out);
  count_votes(now, out);
}

ClientActions CoordinatorClient::stepped_down(const std::string& why, Instant now) {
  ClientActions out;
  if (phase_ == LinkPhase::ended || !coordinator_.is_here) return out;
  coordinator_.is_here = false;
  if (options_.external_leader) coordinator_.at = {};  // unknown until etcd names another
  out.emplace_back(Tell{"this node is no longer the coordinator: " + why, true, false});
  if (phase_ != LinkPhase::seeking) out.emplace_back(Hang{});
  begin_search(now);
  dial_next(now, out);
  return out;
}

ClientActions CoordinatorClient::coordinator_is_at(const HostPort& to, Instant now) {
  ClientActions out;
  if (phase_ == LinkPhase::ended) return out;
  if (phase_ == LinkPhase::joined && coordinator_.at == to) return out;
  if (coordinator_.at != to) dials_.restart();  // it is called first
  coordinator_.at = to;
  const bool tries_another =
      (phase_ == LinkPhase::dialing || phase_ == LinkPhase::joining) && dials_.chosen() != to;
  if (options_.external_leader && tries_another) {
    out.emplace_back(Hang{});
    phase_ = LinkPhase::seeking;
  }
  if (phase_ == LinkPhase::seeking) dial_next(now, out);
  return out;
}

ClientActions CoordinatorClient::coordinator_is_here(const HostPort& at, Instant now) {
  ClientActions out;
  if (phase_ == LinkPhase::ended) return out;
  if (phase_ != LinkPhase::seeking) out.emplace_back(Hang{});
  phase_ = LinkPhase::seeking;
  coordinator_.at = at;
  coordinator_.is_here = true;
  dials_.restart();
  dial_next(now, out);
  return out;
}

ClientActions CoordinatorClient::job_is_gone(const std::string& why, Instant) {
  ClientActions out;
  if (!has_workers()) {
    give_up(GiveUp::Why::unreachable, why, out);
    return out;
  }
  out.emplace_back(OrderKill{why});
  give_up_when_empty_ = GiveUp{GiveUp::Why::unreachable, why};
  return out;
}

ClientActions CoordinatorClient::refused_elsewhere(const std::string& why) {
  ClientActions out;
  if (!has_workers()) give_up(GiveUp::Why::refused, why, out);
  return out;
}

// ---- messages, and giving up ----

void CoordinatorClient::on(const Frame&, const Refused& refused, Instant now, ClientActions& out) {
  const bool can_be_renamed =
      refused.refusal == Refusal::duplicate && !options_.other_name.empty() && is_at_start();
  if (can_be_renamed) {
    auto& name = options_.self.node.name;
    out.emplace_back(Tell{"another machine of this job is called " + name +
                              ", too: this one goes by " + options_.other_name,
                          false});
    name = std::exchange(options_.other_name, {});
    standbys_.rename(name);
    return seek_again(Millis{0}, now, out);
  }
  if (refused.for_ever) {
    GiveUp end{GiveUp::Why::refused, "refused by the coordinator at " +
                                         address_text(dials_.chosen()) + ": " + refused.what};
    if (!has_workers()) return give_up(end.why, end.text, out);
    out.emplace_back(OrderKill{end.text});
    give_up_when_empty_ = std::move(end);
    return;
  }
  last_failure_ = refused.what;
  // A coordinator that hasn't noticed its own loss may be the target of a redirect: it is tried
  // anyway.
  const bool known = refused.redirect.port != 0 && refused.redirect != dials_.chosen() &&
                     !standbys_.is_own(refused.redirect) &&
                     (refused.refusal == Refusal::moved || refused.redirect != coordinator_.at);
  if (refused.redirect.port == 0) standbys_.pass_over(dials_.chosen(), now);  // it can't be elected
  if (refused.refusal == Refusal::moved && known) {
    coordinator_.at = refused.redirect;
    coordinator_.is_here = false;
  }
  const bool was_member = phase_ == LinkPhase::joined;
  const bool at_once = dials_.redirected(known ? std::optional{refused.redirect} : std::nullopt);
  seek_again(at_once ? Millis{0} : backoff(), now, out);
  if (was_member) standbys_.lost(now);
  if (known) dials_.rewind();
}

void CoordinatorClient::give_up(GiveUp::Why why, std::string text, ClientActions& out) {
  if (phase_ == LinkPhase::ended) return;
  if (phase_ != LinkPhase::seeking) out.emplace_back(Hang{});
  phase_ = LinkPhase::ended;
  out.emplace_back(GiveUp{why, std::move(text)});
}

void CoordinatorClient::forget_round(Instant now, ClientActions& out) {
  epoch_.term = {};  // the round stays: the next one must be above it, or the supervisor ignores it
  place_ = {};
  standbys_.set({});
  standbys_.lost(now);
  state_ = NodeState::nothing;
  out.emplace_back(Tell{"the previous round is given up: this node joins as a new one"});
  seek_again(Millis{0}, now, out);
  dials_.restart_pauses();
}

void CoordinatorClient::consider_giving_up(Instant now, ClientActions& out) {
  if (phase_ == LinkPhase::joined || phase_ == LinkPhase::ended || has_workers()) return;
  const bool had_place = epoch_.term.number != 0;
  const auto lost_for = standbys_.lost_for(now);
  const std::string where = address_text(coordinator_.at);
  if (had_place && !can_elect() && !options_.external_leader && !coordinator_.is_here &&
      lost_for >= timings_.lease) {
    // The process there was restarted and waits for a majority of a round that can never have one:
    // this node joins as if it had been restarted, too.
    if (phase_ == LinkPhase::joining) return forget_round(now, out);
    give_up(
        GiveUp::Why::no_majority,
        "the coordinator at " + where + " is lost, and of " + std::to_string(place_.nodes) +
            " nodes the rest is no majority: this node ended its workers when its lease was over "
            "(three or more nodes, or etcd, survive this)",
        out);
    return;
  }
  if (lost_for < options_.join_timeout) return;
  give_up(GiveUp::Why::unreachable,
          "no coordinator " + (coordinator_.at.port != 0 ? "at " + where : "named by etcd") +
              " within " + describe(options_.join_timeout) + ": " + last_failure_,
          out);
}

std::string CoordinatorClient::sought() const {
  if (coordinator_.at.port == 0) return "a coordinator that etcd names";
  return "the coordinator at " + address_text(coordinator_.at);
}

void CoordinatorClient::tell_seeking(Instant now, ClientActions& out) {
  if (now < next_tell_ || phase_ == LinkPhase::ended) return;
  next_tell_ = now + kTellEvery;
  std::string text = "waiting for " + sought() + " for " +
                     describe(Millis{standbys_.lost_for(now) / Millis{1'000} * 1'000}) +
                     " (up to " + describe(options_.join_timeout) + ")";
  if (can_elect() && standbys_.all().empty()) {
    text += ", as no other node can take over";
  } else if (can_elect()) {
    const auto [have, needed, nodes] = votes_.count();
    text += ", or for a successor with a majority of " +
            std::to_string(nodes > 0 ? nodes : place_.nodes) + " nodes";
    if (have > 0) text += " (" + std::to_string(have) + " of " + std::to_string(needed) + " here)";
  }
  if (!last_failure_.empty()) text += ": " + last_failure_;
  if (is_at_start() && !coordinator_.is_here) text += options_.seek_hint;
  out.emplace_back(Tell{std::move(text), true});
}

}  // namespace acc::rendezvous
