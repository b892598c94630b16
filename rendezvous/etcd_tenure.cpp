#include "rendezvous/etcd_leadership_impl.hpp"

#include <algorithm>

namespace acc::rendezvous {

namespace etcd_detail {

namespace {

constexpr Millis kShortestRetry{50};
constexpr int kMostWriteTries = 4;

Error not_leader(const std::string& job) {
  return {Errc::not_permitted,
          "etcd: write the table of job '" + job + "': refused, this node doesn't lead any more"};
}

}  // namespace

/// Renews at a third of the time; after a failure more often, until the end timer ends it.
asio::awaitable<void> renew(Self self, TenurePtr t) {
  const Millis third = self->plan.ttl / 3;
  while (!t->is_over) {
    t->renewal.expires_at(t->renew_at);
    co_await t->renewal.async_wait(kResult);
    if (t->is_over) co_return;
    const Instant sent = clock_now();
    const Instant boot_sent = boot_now();
    EtcdCall renewing = self->call("renew the lease", std::min(sent + third, t->until));
    const auto lease = co_await self->client.keep_alive(t->lease, std::move(renewing));
    if (t->is_over) co_return;
    if (!lease) {
      self->note_trouble(lease.error());
      t->renew_at = sent + std::max(self->plan.ttl / 10, kShortestRetry);
      continue;
    }
    self->note_answer();
    if (lease->ttl_s == 0) {
      self->lose(t, "etcd has ended the lease");
      co_return;
    }
    t->until = sent + self->validity(lease->ttl_s);
    t->boot_asked = boot_sent;
    t->boot_until = boot_sent + self->validity(lease->ttl_s);
    t->renew_at = sent + third;
    self->arm_end(t);
  }
}

asio::awaitable<Result<void>> write_table(Self self, TenurePtr t, CommittedTable table) {
  if (table.bytes.size() > kMaxEtcdTable)
    co_return Error{Errc::exhausted, "etcd: write the table of job '" + self->plan.job +
                                         "': " + std::to_string(table.bytes.size()) +
                                         " bytes are more than " + std::to_string(kMaxEtcdTable)};
  const std::string value = to_etcd(table);
  for (int i = 0; i < kMostWriteTries; ++i) {
    if (!t || t->is_over || clock_now() >= t->until) co_return not_leader(self->plan.job);
    EtcdTransaction write;
    write.when = self->still_leads(*t);
    // Also against a write of our own that was given up for lost and comes late.
    write.when.push_back({self->keys.table, EtcdCompare::Of::modified, t->table_modified, {}});
    write.then = {put(self->keys.table, value)};
    write.otherwise = {get(self->keys.leader), get(self->keys.table)};
    EtcdCall writing =
        self->call("write the table", std::min(clock_now() + kRequestLimit, t->until));
    const auto reply = co_await self->client.transact(std::move(write), std::move(writing));
    if (!reply) co_return reply.error();
    if (reply->succeeded) {
      t->table_modified = reply->revision;
      co_return Result<void>{};
    }
    const auto& leader = reply->reads.at(0);
    if (!leader || leader->created != t->created || leader->value != t->value) {
      if (!t->is_over) self->settle(reply->revision, leader);
      co_return not_leader(self->plan.job);
    }
    const auto& there = reply->reads.at(1);
    t->table_modified = there ? there->modified : 0;
    if (there && there->value == value) co_return Result<void>{};
  }
  co_return Error{Errc::unavailable, "etcd: write the table of job '" + self->plan.job +
                                         "': something else keeps changing " + self->keys.table};
}

asio::awaitable<Result<void>> resign(Self self, TenurePtr t) {
  if (!t) co_return Result<void>{};
  EtcdCall revoking = self->call("give up the lease of the leader", clock_now() + kRequestLimit);
  const auto revoked = co_await self->client.revoke(t->lease, std::move(revoking));
  if (!revoked) co_return revoked.error();
  co_return Result<void>{};
}

asio::awaitable<Result<void>> end_job(Self self, TenurePtr t) {
  if (!t) co_return not_leader(self->plan.job);
  EtcdTransaction removal;
  removal.when = self->still_leads(*t);
  removal.then = {remove(self->keys.leader), remove(self->keys.term), remove(self->keys.table)};
  EtcdCall removing = self->call("remove the keys", clock_now() + kRequestLimit);
  const auto removed = co_await self->client.transact(std::move(removal), std::move(removing));
  if (!removed) co_return removed.error();
  self->revoke_later(t->lease);
  if (!removed->succeeded) co_return not_leader(self->plan.job);
  co_return Result<void>{};
}

}  // namespace etcd_detail

using namespace etcd_detail;

Millis EtcdLeadership::Impl::validity(std::int64_t granted_s) const {
  constexpr std::int64_t kDay = 86'400;
  const Millis granted = std::chrono::seconds{std::min(granted_s, kDay)};
  // Two clocks never run alike; 2 % is far more than they differ.
  return std::min(plan.ttl, granted) * 49 / 50;
}

std::vector<EtcdCompare> EtcdLeadership::Impl::still_leads(const Tenure& t) const {
  // The value, too: an etcd that lost its data counts revisions anew.
  return {{keys.leader, EtcdCompare::Of::created, t.created, {}},
          {keys.leader, EtcdCompare::Of::value, 0, t.value}};
}

void EtcdLeadership::Impl::begin(TenurePtr t) {
  tenure = t;
  arm_end(t);
  spawn(renew(shared_from_this(), t));
  start();  // a leader watches its key: somebody may remove it
  settle(t->created, EtcdEntry{keys.leader, t->value, t->created, t->created, t->lease});
}

void EtcdLeadership::Impl::arm_end(const TenurePtr& t) {
  t->end.expires_at(t->until);
  t->end.async_wait([weak = weak_from_this(), t](boost::system::error_code error) {
    const auto self = weak.lock();
    if (error || !self || t->is_over || clock_now() < t->until) return;
    std::string why = "it couldn't be renewed within " + describe(self->plan.ttl);
    if (self->is_troubled) why += " (" + self->last_trouble + ')';
    self->lose(t, std::move(why));
  });
}

void EtcdLeadership::Impl::leave(const TenurePtr& t) {
  t->is_over = true;
  t->renewal.cancel();
  t->end.cancel();
  if (tenure == t) tenure.reset();
}

void EtcdLeadership::Impl::lose(const TenurePtr& t, std::string why) {
  if (t->is_over) return;
  const TenurePtr kept = t;  // the caller may have passed our own member
  leave(kept);
  revoke_later(kept->lease);
  if (!events.lost || is_stopped) return;
  events.lost({Errc::unavailable, "etcd: this node leads job '" + plan.job + "' no more: " + why});
}

void EtcdLeadership::Impl::revoke_later(std::int64_t lease) {
  const auto revoke = [](Self self, std::int64_t id) -> asio::awaitable<void> {
    EtcdCall revoking = self->call("give up a lease", clock_now() + kRequestLimit);
    // If that fails, the lease runs out by itself.
    co_await self->client.revoke(id, std::move(revoking));
  };
  if (!is_stopped) spawn(revoke(shared_from_this(), lease));
}

void EtcdLeadership::Impl::write_tables() {
  const auto self = shared_from_this();
  Done<void> next = [self](Result<void> result) {
    const auto done = std::move(self->writes.front().done);
    self->writes.pop_front();
    if (!self->writes.empty()) self->write_tables();
    if (done) done(std::move(result));
  };
  const auto& write = writes.front();
  deliver(write_table(self, write.tenure, write.table), std::move(next));
}

}  // namespace acc::rendezvous
