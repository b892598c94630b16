#include "rendezvous/member.hpp"

#include <algorithm>
#include <utility>

// Finding a coordinator: the first one by its address, a lost one again, its successor by votes.
// For whom it votes stands in member_election.cpp.
namespace acc::rendezvous {

namespace {

constexpr Millis kFirstBackoff{50};
constexpr Millis kLongestBackoff{1'000};
constexpr Millis kDialLimit{3'000};
constexpr Millis kFirstTell{5'000};
constexpr Millis kTellEvery{30'000};

}  // namespace

MemberActions Member::begin(Instant now) {
  MemberActions out;
  ticked_ = began_ = lost_at_ = now;
  next_tell_ = now + kFirstTell;
  dial_next(now, out);
  return out;
}

Join Member::make_join() const {
  Join join = options_.self;
  if (join.address.empty()) join.address = address_;
  join.holding = holding_;
  join.epoch = epoch_;
  join.node_rank = place_.node_rank;
  join.first_rank = place_.first_rank;
  join.nodes = place_.nodes;
  join.ledger = place_.ledger;
  join.vote = term_;
  return join;
}

std::vector<HostPort> Member::targets(Instant now) const {
  if (coordinator_here_) return {coordinator_};
  std::vector<HostPort> list;
  const auto add = [&](const HostPort& to) {
    if (to.port != 0 && std::ranges::find(list, to) == list.end()) list.push_back(to);
  };
  const auto own = own_standby();
  // A standby that waits for votes in its own slot calls no other one.
  const bool waits = now < stands_until_ || standbys_.empty() || own == first_called(now);
  if (can_elect() && !waits) {
    const auto size = standbys_.size();
    const auto first = first_called(now);
    const auto called = preferred_standby(now);
    // Those that were passed over, too: they may be back, or only slow.
    for (std::size_t i = (called + size - first) % size + 1; i-- > 0;) {
      if ((first + i) % size != own) add(standbys_[(first + i) % size].at);
    }
    for (std::size_t i = first; i-- > 0;) {
      if (i != own) add(standbys_[i].at);
    }
  }
  const bool is_own_home = options_.hosts && !coordinator_here_;
  const bool is_own = own && coordinator_ == standbys_[*own].at;
  if (!is_own && !(is_own_home && coordinator_ == options_.home)) add(coordinator_);
  if (!is_own_home) add(options_.home);
  // One of them may be coordinator by now, or know him, when etcd is out of reach or a spare's
  // coordinator is gone.
  if (options_.has_witness || epoch_.term.number == 0) {
    for (std::size_t i = 0; i < standbys_.size(); ++i) {
      if (i != own) add(standbys_[i].at);
    }
  }
  return list;
}

void Member::dial_next(Instant now, MemberActions& out) {
  const auto list = targets(now);
  const bool is_redirected = redirect_.has_value() && !coordinator_here_;
  if (list.empty() && !is_redirected) {  // the only candidate left is this node
    next_dial_ = now + kLongestBackoff;
    phase_ = LinkPhase::seeking;
    return;
  }
  if (!list.empty() && list.front() != first_target_) {
    first_target_ = list.front();
    next_target_ = 0;
  }
  dialed_ = is_redirected ? *redirect_ : list[next_target_ % list.size()];
  // All but the first get less, the coordinator that was lost among them: while one of them is
  // waited for the lease runs.
  const auto share = is_redirected || dialed_ == list.front() ? 2 : 5;
  const auto limit = dial_limit(share);
  phase_ = LinkPhase::dialing;
  redirect_.reset();
  link_deadline_ = now + 4 * limit + Millis{500};  // the dialler keeps its own limits
  out.emplace_back(DialTo{dialed_, coordinator_here_, limit});
}

// For connecting. A line whose round trip is known gets three of them; on one that isn't, the
// second try is more patient than the first, which is to tell soon of a wrong address.
Millis Member::dial_limit(int share) const {
  if (epoch_.term.number == 0) return dials_ == 0 ? kDialLimit : 2 * kDialLimit;
  const auto quick = std::clamp<Millis>(timings_.dead / share, Millis{100}, kDialLimit);
  return std::max(quick, std::min<Millis>(3 * round_trip_, 2 * kDialLimit));
}

MemberActions Member::link_up(const std::string& local_address, Instant now) {
  MemberActions out;
  if (phase_ != LinkPhase::dialing) return out;
  phase_ = LinkPhase::joining;
  if (!local_address.empty()) address_ = local_address;
  gives_vote_at_ = now + timings_.dead / 5;
  // Where it isn't coordinator yet the Join waits as a vote, until the next slot.
  link_deadline_ = can_elect() ? std::max(slot_end(now), now + timings_.dead / 2)
                               : now + std::max<Millis>(timings_.dead, kDialLimit);
  joined_with_ = holding_;
  out.emplace_back(Send{{{term_, epoch_.round}, make_join()}});
  return out;
}

MemberActions Member::dial_failed(const DialFailure& failure, Instant now) {
  MemberActions out;
  if (phase_ != LinkPhase::dialing) return out;
  last_failure_ = failure.what;
  if (failure.not_authentic && epoch_.term.number == 0) {
    give_up(GiveUp::Why::not_authentic, failure.what, out);
    return out;
  }
  phase_ = LinkPhase::seeking;
  count_dial();
  pass_over(dialed_, now);
  const auto list = targets(now);
  const bool is_another = !list.empty() && list.front() != first_target_;
  const bool more_to_try = list.size() > 1 && next_target_ % list.size() != 0;
  next_dial_ = is_another || more_to_try ? now : now + backoff();
  count_votes(now, out);
  return out;
}

void Member::count_dial() {
  ++dials_;
  ++next_target_;
}

// Full jitter: after a loss all agents start at the same moment.
Millis Member::backoff() {
  const auto shift = std::min<std::size_t>(dials_, 6);
  const auto ceiling = std::min<Millis>({kFirstBackoff * (1 << shift), kLongestBackoff,
                                         std::max<Millis>(timings_.dead / 5, kFirstBackoff)});
  random_ = random_ * 6364136223846793005ULL + 1442695040888963407ULL;
  const double fraction = static_cast<double>(random_ >> 11U) * 0x1.0p-53;
  return ceiling / 2 +
         Millis{static_cast<Millis::rep>(static_cast<double>(ceiling.count()) * fraction / 2)};
}

void Member::seek_again(Millis delay, Instant now, MemberActions& out) {
  out.emplace_back(Hang{});
  phase_ = LinkPhase::seeking;
  count_dial();
  next_dial_ = now + delay;
  count_votes(now, out);
}

MemberActions Member::link_lost(const std::string& why, Instant now, bool not_authentic) {
  MemberActions out;
  if (phase_ == LinkPhase::ended || phase_ == LinkPhase::seeking) return out;
  if (phase_ == LinkPhase::member) {
    lose_link(why, now, out);
    return out;
  }
  last_failure_ = why;
  phase_ = LinkPhase::seeking;
  if (not_authentic && epoch_.term.number == 0) {
    give_up(GiveUp::Why::not_authentic, address_text(dialed_) + " " + why, out);
    return out;
  }
  count_dial();
  next_dial_ = now + backoff();
  count_votes(now, out);
  return out;
}

// All that was learned about who can be reached belongs to the loss before.
void Member::begin_search(Instant now) {
  phase_ = LinkPhase::seeking;
  lost_at_ = next_dial_ = now;
  next_tell_ = now + kFirstTell;
  dials_ = next_target_ = 0;
  passed_.reset();
  stands_until_ = {};
}

void Member::lose_link(const std::string& why, Instant now, MemberActions& out) {
  begin_search(now);
  last_failure_ = why;
  std::string text = "lost the coordinator at " + address_text(coordinator_) + ": " + why;
  if (has_workers() && lease_end_) {
    const auto left = std::chrono::duration_cast<Millis>(*lease_end_ - now);
    text += "; the workers here go on for " + describe(std::max(left, Millis{0})) +
            " unless it or its successor is found";
  }
  out.emplace_back(Tell{std::move(text), true});
  dial_next(now, out);
  count_votes(now, out);
}

MemberActions Member::stepped_down(const std::string& why, Instant now) {
  MemberActions out;
  if (phase_ == LinkPhase::ended || !coordinator_here_) return out;
  coordinator_here_ = false;
  if (options_.has_witness) coordinator_ = {};  // not ourselves, and who else etcd will tell
  out.emplace_back(Tell{"this node is coordinator no more: " + why, true});
  if (phase_ != LinkPhase::seeking) out.emplace_back(Hang{});
  begin_search(now);
  dial_next(now, out);
  return out;
}

MemberActions Member::coordinator_is_at(const HostPort& to, Instant now) {
  MemberActions out;
  if (phase_ == LinkPhase::ended) return out;
  if (phase_ == LinkPhase::member && coordinator_ == to) return out;
  if (coordinator_ != to) dials_ = next_target_ = 0;  // it is called first
  coordinator_ = to;
  const bool tries_another =
      (phase_ == LinkPhase::dialing || phase_ == LinkPhase::joining) && dialed_ != to;
  if (options_.has_witness && tries_another) {
    out.emplace_back(Hang{});
    phase_ = LinkPhase::seeking;
  }
  if (phase_ == LinkPhase::seeking) dial_next(now, out);
  return out;
}

MemberActions Member::coordinator_is_here(const HostPort& at, Instant now) {
  MemberActions out;
  if (phase_ == LinkPhase::ended) return out;
  if (phase_ != LinkPhase::seeking) out.emplace_back(Hang{});
  phase_ = LinkPhase::seeking;
  coordinator_ = at;
  coordinator_here_ = true;
  dials_ = next_target_ = 0;
  dial_next(now, out);
  return out;
}

MemberActions Member::job_is_gone(const std::string& why, Instant) {
  MemberActions out;
  if (!has_workers()) {
    give_up(GiveUp::Why::unreachable, why, out);
    return out;
  }
  out.emplace_back(OrderKill{why});
  give_up_when_empty_ = GiveUp{GiveUp::Why::unreachable, why};
  return out;
}

// ---- words, and the end ----

void Member::on(const Frame&, const Refused& refused, Instant now, MemberActions& out) {
  const bool can_be_renamed = refused.refusal == Refusal::duplicate &&
                              !options_.other_name.empty() && epoch_.term.number == 0;
  if (can_be_renamed) {
    auto& name = options_.self.node.name;
    out.emplace_back(Tell{"another machine of this job is called " + name +
                              ", too: this one goes by " + options_.other_name,
                          false});
    name = std::exchange(options_.other_name, {});
    return seek_again(Millis{0}, now, out);
  }
  if (refused.for_ever) {
    GiveUp end{GiveUp::Why::refused,
               "refused by the coordinator at " + address_text(dialed_) + ": " + refused.what};
    if (!has_workers()) return give_up(end.why, end.text, out);
    out.emplace_back(OrderKill{end.text});
    give_up_when_empty_ = std::move(end);
    return;
  }
  last_failure_ = refused.what;
  // Somebody who hasn't noticed yet that it is lost sends us back to it: that one is tried anyway.
  const auto own = own_standby();
  const bool is_own = own && refused.redirect == standbys_[*own].at;
  const bool known = refused.redirect.port != 0 && refused.redirect != dialed_ && !is_own &&
                     (refused.refusal == Refusal::moved || refused.redirect != coordinator_);
  if (known) redirect_ = refused.redirect;
  if (refused.redirect.port == 0) pass_over(dialed_, now);  // it can't be elected
  if (refused.refusal == Refusal::moved && known) {
    coordinator_ = refused.redirect;
    coordinator_here_ = false;
  }
  const bool was_member = phase_ == LinkPhase::member;
  constexpr std::uint32_t kQuickRedirects = 4;  // more are a circle
  redirects_ = known ? redirects_ + 1 : 0;
  seek_again(known && redirects_ <= kQuickRedirects ? Millis{0} : backoff(), now, out);
  if (was_member) {
    lost_at_ = now;
    passed_.reset();
  }
  if (redirect_) next_target_ = 0;
}

void Member::give_up(GiveUp::Why why, std::string text, MemberActions& out) {
  if (phase_ == LinkPhase::ended) return;
  if (phase_ != LinkPhase::seeking) out.emplace_back(Hang{});
  phase_ = LinkPhase::ended;
  out.emplace_back(GiveUp{why, std::move(text)});
}

void Member::forget_round(Instant now, MemberActions& out) {
  epoch_.term = {};  // the round stays: the next one must be above it, or the supervisor ignores it
  place_ = {};
  standbys_.clear();
  holding_ = Holding::nothing;
  lost_at_ = now;
  passed_.reset();
  out.emplace_back(Tell{"the round of before is given up: this node joins as a new one"});
  seek_again(Millis{0}, now, out);
  dials_ = 0;
}

void Member::consider_giving_up(Instant now, MemberActions& out) {
  if (phase_ == LinkPhase::member || phase_ == LinkPhase::ended || has_workers()) return;
  const bool had_place = epoch_.term.number != 0;
  const auto lost_for = std::chrono::duration_cast<Millis>(now - lost_at_);
  const std::string where = address_text(coordinator_);
  if (had_place && !can_elect() && !options_.has_witness && !coordinator_here_ &&
      lost_for >= timings_.lease) {
    // Somebody is there and waits for a majority of a round that will never have one: it was
    // started again, and we come as if we had been, too.
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
          "no coordinator " + (coordinator_.port != 0 ? "at " + where : "named by etcd") +
              " within " + describe(options_.join_timeout) + ": " + last_failure_,
          out);
}

std::string Member::sought() const {
  if (coordinator_.port == 0) return "a coordinator that etcd names";
  return "the coordinator at " + address_text(coordinator_);
}

void Member::tell_seeking(Instant now, MemberActions& out) {
  if (now < next_tell_ || phase_ == LinkPhase::ended) return;
  next_tell_ = now + kTellEvery;
  const auto waited = std::chrono::duration_cast<Millis>(now - lost_at_);
  std::string text = "waiting for " + sought() + " for " +
                     describe(Millis{waited / Millis{1'000} * 1'000}) + " (up to " +
                     describe(options_.join_timeout) + ")";
  if (can_elect() && standbys_.empty()) {
    text += ", as no other node can take over";
  } else if (can_elect()) {
    const auto [have, needed] = ballot_.count();
    text += ", or for a successor with a majority of " + std::to_string(place_.nodes) + " nodes";
    if (have > 0) text += " (" + std::to_string(have) + " of " + std::to_string(needed) + " here)";
  }
  if (!last_failure_.empty()) text += ": " + last_failure_;
  out.emplace_back(Tell{std::move(text), true});
}

}  // namespace acc::rendezvous
