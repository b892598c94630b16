#include "rendezvous/authority.hpp"

#include "rendezvous/majority.hpp"
#include "rendezvous/planted.hpp"

#include <algorithm>
#include <functional>

namespace acc::rendezvous {

// ---- QuorumAuthority ----

bool QuorumAuthority::may_act(Instant now) const {
  if (planted::elect_without_majority || contacts_.empty()) return true;
  const Instant proof = quorum_contact();
  if (doubted_at_ && proof < *doubted_at_) return false;
  return is_confirmed_ && now < proof + timings_.lease;
}

Millis QuorumAuthority::grant(Instant now) const {
  if (planted::elect_without_majority) return timings_.lease;
  if (!may_act(now)) return Millis{0};
  if (contacts_.empty()) return timings_.lease;
  const auto left = std::chrono::duration_cast<Millis>(quorum_contact() + timings_.lease - now);
  return std::clamp(left, Millis{0}, timings_.lease);
}

Instant QuorumAuthority::proved_at() {
  quorum_cache_.reset();
  return quorum_contact();
}

// The rest of the earlier round must be too small to elect a coordinator that doesn't know the next
// one: a majority of it then always includes a member of the next.
bool QuorumAuthority::may_continue_with(std::size_t kept, std::size_t nodes) const {
  return nodes == 0 || planted::elect_without_majority ||
         kept >= quorum_of(static_cast<std::uint32_t>(nodes));
}

bool QuorumAuthority::is_followed_by_all(Instant since) const {
  return std::ranges::all_of(contacts_, [&](Instant contact) { return contact > since; });
}

std::optional<std::string> QuorumAuthority::loss(Instant now, Instant since) const {
  if (contacts_.empty() || may_act(now)) return std::nullopt;
  // A new round, an election or a doubt happened recently: the answers are still on their way.
  const auto answered_from = std::max({since, elected_at_, doubted_at_.value_or(elected_at_)});
  if (now < answered_from + timings_.lease) return std::nullopt;
  const auto heard = std::ranges::count_if(
      contacts_, [&](Instant contact) { return now - contact < timings_.lease; });
  return "only " + std::to_string(heard) + " of the " + std::to_string(contacts_.size()) +
         " nodes of the last round can be heard from here: this side is the minority, the others "
         "may go on without it";
}

void QuorumAuthority::elected(std::size_t nodes, EstablishedMajority before, Instant now) {
  contacts_.assign(nodes, Instant{});
  before_ = std::move(before);
  elected_at_ = now;
  is_confirmed_ = false;
  quorum_cache_.reset();
}

// Such a round needs a message from each of its members before it starts.
void QuorumAuthority::assigned(std::size_t nodes) {
  contacts_.assign(nodes, Instant{});
  is_confirmed_ = true;
  quorum_cache_.reset();
}

// From then on no earlier coordinator can renew a lease.
bool QuorumAuthority::echoed(std::size_t node_rank, Instant stamp) {
  contacts_[node_rank] = std::max(contacts_[node_rank], stamp);
  if (is_confirmed_) return false;
  is_confirmed_ = have_majorities_answered();
  return is_confirmed_;
}

bool QuorumAuthority::have_majorities_answered() const {
  const auto majority = majority_of(static_cast<std::uint32_t>(contacts_.size()));
  const auto of_before = std::ranges::count_if(
      before_.members, [&](NodeRank member) { return contacts_[member.value()] >= elected_at_; });
  return nth_contact(majority) >= elected_at_ && of_before >= before_.needed;
}

Instant QuorumAuthority::nth_contact(std::uint32_t n) const {
  auto contacts = contacts_;
  const auto nth = contacts.begin() + static_cast<std::ptrdiff_t>(n) - 1;
  std::ranges::nth_element(contacts, nth, std::greater{});
  return *nth;
}

// The latest time at which a quorum was provably still following this coordinator. In large rounds
// it is computed once a tick: an older value is only more cautious.
Instant QuorumAuthority::quorum_contact() const {
  constexpr std::size_t kSmall = 64;
  if (contacts_.size() <= kSmall || !quorum_cache_)
    quorum_cache_ = nth_contact(quorum_of(static_cast<std::uint32_t>(contacts_.size())));
  return *quorum_cache_;
}

// ---- ExternalAuthority ----

bool ExternalAuthority::may_act(Instant now) const {
  return planted::elect_without_majority ||
         (now < end_ && (!doubted_at_ || asked_ >= *doubted_at_));
}

// A worker's lease may outlive etcd's lease: a successor waits for that long.
Millis ExternalAuthority::grant(Instant now) const {
  return may_act(now) ? timings_.lease : Millis{0};
}

void ExternalAuthority::extended(Instant end, Instant asked) {
  end_ = end;
  asked_ = asked;
}

}  // namespace acc::rendezvous
