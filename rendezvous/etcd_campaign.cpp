#include "rendezvous/etcd_leadership_impl.hpp"

#include <algorithm>
#include <limits>

namespace acc::rendezvous {

namespace etcd_detail {

/// Frees the campaign for the next, however it ends. Part of a coroutine, so not without a name.
struct Campaigning {
  explicit Campaigning(Self s) : self{std::move(s)} { self->is_campaigning = true; }
  ~Campaigning() { self->is_campaigning = false; }
  Campaigning(const Campaigning&) = delete;
  Campaigning& operator=(const Campaigning&) = delete;
  Self self;
};

namespace {

constexpr std::uint32_t kLastTerm = std::numeric_limits<std::uint32_t>::max();

Error about_key(const std::string& key, const Error& error) {
  return {error.code, "etcd: " + key + ": " + error.what};
}

EtcdTransaction claim_of(const EtcdKeys& keys, std::uint32_t term, std::int64_t term_modified,
                         const std::string& value, std::int64_t lease) {
  EtcdTransaction claim;
  claim.when = {{keys.leader, EtcdCompare::Of::created, 0, {}},
                {keys.term, EtcdCompare::Of::modified, term_modified, {}}};
  claim.then = {put(keys.leader, value, lease), put(keys.term, std::to_string(term)),
                get(keys.table)};
  claim.otherwise = {get(keys.leader), get(keys.table)};
  return claim;
}

struct Claim {
  std::int64_t created = 0;  ///< 0: somebody was faster
  std::optional<EtcdEntry> table;
};

/// An answer that got lost is seen again here: the client asked the next member, and the key that
/// it found is our own.
Claim outcome_of(EtcdTransactionReply reply, const std::string& value, std::int64_t lease) {
  if (reply.succeeded) return {reply.revision, std::move(reply.reads.at(2))};
  const auto& there = reply.reads.at(0);
  if (!there || there->value != value || there->lease != lease) return {};
  return {there->created, std::move(reply.reads.at(1))};
}

/// Nothing: somebody was faster.
asio::awaitable<Result<std::optional<Campaign>>> claim(Self self, std::uint32_t term,
                                                       std::int64_t term_modified,
                                                       Instant deadline) {
  const Instant asked = clock_now();
  const Instant boot_asked = boot_now();
  EtcdCall granting = self->call("get a lease for the leader", deadline);
  const auto ttl_s = std::chrono::ceil<std::chrono::seconds>(self->plan.ttl).count();
  const auto lease = co_await self->client.grant(ttl_s, std::move(granting));
  if (!lease) co_return lease.error();

  const Leader me{self->plan.me, self->plan.at, term};
  const std::string value = to_etcd(me);
  EtcdTransaction transaction = claim_of(self->keys, term, term_modified, value, lease->id);
  EtcdCall claiming = self->call("become the leader", deadline);
  auto reply = co_await self->client.transact(std::move(transaction), std::move(claiming));
  if (self->is_stopped) co_return Error{Errc::unavailable, "etcd: given up, as the job ends"};
  if (!reply) {
    self->revoke_later(lease->id);  // with the key, if it was written after all
    co_return reply.error();
  }
  auto claimed = outcome_of(std::move(*reply), value, lease->id);
  if (claimed.created == 0) {
    self->revoke_later(lease->id);
    co_return std::optional<Campaign>{};
  }

  std::optional<CommittedTable> table;
  if (claimed.table) {
    auto parsed = parse_committed_table(claimed.table->value);
    if (!parsed) {
      self->revoke_later(lease->id);
      co_return about_key(self->keys.table, parsed.error());
    }
    table = std::move(*parsed);
  }
  const auto tenure = std::make_shared<Tenure>(self->executor);
  tenure->leader = me;
  tenure->value = value;
  tenure->created = claimed.created;
  tenure->lease = lease->id;
  tenure->table_modified = claimed.table ? claimed.table->modified : 0;
  tenure->until = asked + self->validity(lease->ttl_s);
  tenure->boot_asked = boot_asked;
  tenure->boot_until = boot_asked + self->validity(lease->ttl_s);
  tenure->renew_at = asked + self->plan.ttl / 3;
  if (clock_now() >= tenure->until) {
    self->revoke_later(lease->id);
    co_return Error{Errc::timed_out, "etcd: become the leader of job '" + self->plan.job +
                                         "': the answers took longer than the lease of " +
                                         describe(self->plan.ttl)};
  }
  self->begin(tenure);
  co_return std::optional{Campaign{true, me, std::move(table)}};
}

/// A key that this very agent left behind when it lost its lease: nobody needs to wait for it.
asio::awaitable<Result<void>> remove_own(Self self, std::int64_t created, Instant deadline) {
  EtcdTransaction removal;
  removal.when = {{self->keys.leader, EtcdCompare::Of::created, created, {}}};
  removal.then = {remove(self->keys.leader)};
  EtcdCall removing = self->call("remove an old entry of this node as leader", deadline);
  const auto removed = co_await self->client.transact(std::move(removal), std::move(removing));
  if (!removed) co_return removed.error();
  co_return Result<void>{};
}

}  // namespace

asio::awaitable<Result<Campaign>> campaign(Self self, std::uint32_t lowest_term, Instant deadline) {
  if (self->tenure) co_return Campaign{true, self->tenure->leader, {}};
  if (self->is_campaigning)
    co_return Error{Errc::bad_usage, "etcd: a campaign of this node is under way already"};
  const Campaigning campaigning{self};
  while (clock_now() < deadline) {
    EtcdTransaction look;
    look.then = {get(self->keys.leader), get(self->keys.term)};
    EtcdCall looking = self->call("look for the leader", deadline);
    const auto found = co_await self->client.transact(std::move(look), std::move(looking));
    if (!found) co_return found.error();
    const auto& leader_entry = found->reads.at(0);
    const auto& term_entry = found->reads.at(1);
    if (leader_entry) {
      auto leader = parse_leader(leader_entry->value);
      if (!leader) co_return about_key(self->keys.leader, leader.error());
      if (leader->node != self->plan.me) co_return Campaign{false, std::move(*leader), {}};
      const auto removed = co_await remove_own(self, leader_entry->created, deadline);
      if (!removed) co_return removed.error();
      continue;
    }
    std::uint32_t last = 0;
    if (term_entry) {
      const auto term = parse_term(term_entry->value);
      if (!term) co_return about_key(self->keys.term, term.error());
      last = *term;
    }
    if (last == kLastTerm)
      co_return about_key(self->keys.term, {Errc::exhausted, "no term is left: remove that key"});
    const std::uint32_t term = std::max(last + 1, lowest_term);
    auto claimed = co_await claim(self, term, term_entry ? term_entry->modified : 0, deadline);
    if (!claimed) co_return claimed.error();
    if (*claimed) co_return std::move(**claimed);
  }
  co_return Error{Errc::timed_out, "etcd: become the leader of job '" + self->plan.job +
                                       "': others were faster each time"};
}

}  // namespace etcd_detail

}  // namespace acc::rendezvous
