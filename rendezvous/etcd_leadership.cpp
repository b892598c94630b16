#include "rendezvous/etcd_leadership.hpp"

#include "rendezvous/etcd_leadership_impl.hpp"

#include <algorithm>

// The outer object, and what it learns of the leader key. How one gets to lead stands in
// etcd_campaign.cpp, what a leader does in etcd_tenure.cpp.
namespace acc::rendezvous {

namespace {

using etcd_detail::kRequestLimit;
using etcd_detail::kResult;
using etcd_detail::Self;
namespace asio = boost::asio;

constexpr Millis kFirstPause{200};
constexpr Millis kLongestPause{5'000};
constexpr Millis kShortestTtl{100};
constexpr Millis kShortestCheck{2'000};

/// Reads the key, then watches it from there: whatever broke the stream, nothing is missed, also
/// when etcd has forgotten the history meanwhile.
asio::awaitable<void> watch_leader(Self self) {
  Millis pause = kFirstPause;
  while (!self->is_stopped) {
    const std::int64_t seen = self->seen;
    EtcdCall reading = self->call("read the leader", clock_now() + kRequestLimit);
    const auto read = co_await self->client.range(self->keys.leader, std::move(reading));
    if (self->is_stopped) co_return;
    if (read) {
      pause = kFirstPause;
      self->note_answer();
      self->settle_read(seen, *read);
      EtcdCall watching = self->call("watch the leader", clock_now() + kRequestLimit);
      // Weak: the stream may be the last thing that holds us.
      EtcdClient::OnEvent on_event = [weak = std::weak_ptr{self}](const EtcdEvent& event) {
        const auto impl = weak.lock();
        if (!impl || impl->is_stopped) return;
        impl->settle(event.entry.modified,
                     event.removed ? std::nullopt : std::optional{event.entry});
      };
      // Why it broke is of no interest: the next read tells whether there is trouble.
      co_await self->client.watch(self->keys.leader, read->revision + 1, std::move(on_event),
                                  std::move(watching));
    } else {
      self->note_trouble(read.error());
    }
    if (self->is_stopped) co_return;
    self->watch_pause.expires_after(pause);
    co_await self->watch_pause.async_wait(kResult);
    if (!read) pause = std::min(pause * 2, kLongestPause);
  }
}

/// A stream from a frozen or cut-off member is silent for ever. So the key is read now and then; a
/// read goes through the majority of the cluster.
asio::awaitable<void> check_leader(Self self) {
  while (!self->is_stopped) {
    self->check_pause.expires_after(std::max(self->plan.ttl, kShortestCheck));
    co_await self->check_pause.async_wait(kResult);
    if (self->is_stopped) co_return;
    const std::int64_t seen = self->seen;
    EtcdCall reading = self->call("read the leader", clock_now() + kRequestLimit);
    const auto read = co_await self->client.range(self->keys.leader, std::move(reading));
    if (self->is_stopped) co_return;
    if (!read) {
      self->note_trouble(read.error());
      continue;
    }
    self->note_answer();
    const bool was_reset = read->revision < seen;
    self->settle_read(seen, *read);
    if (was_reset || self->client.watch_is_elsewhere()) self->client.break_watches();
  }
}

asio::awaitable<Result<std::optional<CommittedTable>>> read_table_of(Self self) {
  EtcdCall reading = self->call("read the table", clock_now() + kRequestLimit);
  const auto read = co_await self->client.range(self->keys.table, std::move(reading));
  if (!read) co_return read.error();
  if (!read->entry) co_return std::optional<CommittedTable>{};
  auto table = parse_committed_table(read->entry->value);
  if (!table) co_return Error{table.error().code, "etcd: " + table.error().what};
  co_return std::optional{std::move(*table)};
}

/// A plan that nobody should have to think about.
LeadershipPlan settled(LeadershipPlan plan) {
  plan.ttl = std::max(plan.ttl, kShortestTtl);
  return plan;
}

}  // namespace

EtcdLeadership::Impl::Impl(asio::any_io_executor e, LeadershipPlan p, LeadershipEvents told)
    : executor{std::move(e)},
      plan{settled(std::move(p))},
      events{std::move(told)},
      keys{plan.prefix, plan.job},
      client{executor, plan.endpoints},
      watch_pause{executor},
      check_pause{executor} {}

EtcdCall EtcdLeadership::Impl::call(std::string_view what, Instant deadline) const {
  const auto left = std::chrono::ceil<Millis>(deadline - clock_now());
  return {std::string{what} + " of job '" + plan.job + '\'', std::max(left, Millis{1})};
}

void EtcdLeadership::Impl::start() {
  if (is_started || is_stopped) return;
  is_started = true;
  spawn(watch_leader(shared_from_this()));
  spawn(check_leader(shared_from_this()));
}

void EtcdLeadership::Impl::stop() {
  is_stopped = true;
  if (tenure) leave(tenure);
  client.stop();
  watch_pause.cancel();
  check_pause.cancel();
}

void EtcdLeadership::Impl::settle_read(std::int64_t seen_before, const EtcdRead& read) {
  // A read never shows less than was known when it was asked for, unless etcd lost its data.
  if (read.revision < seen_before) seen = read.revision;
  settle(read.revision, read.entry);
}

void EtcdLeadership::Impl::settle(std::int64_t revision, const std::optional<EtcdEntry>& entry) {
  if (revision < seen) return;  // overtaken
  seen = revision;
  const bool is_mine =
      tenure && entry && entry->created == tenure->created && entry->value == tenure->value;
  if (tenure && !is_mine && revision >= tenure->created)
    lose(tenure, entry ? "another node holds the key" : "the key is gone");
  if (is_stopped) return;
  std::optional<Leader> leader;
  if (entry) {
    auto parsed = parse_leader(entry->value);
    if (!parsed) {
      note_trouble({parsed.error().code, "etcd: " + keys.leader + ": " + parsed.error().what});
      return;
    }
    leader = std::move(*parsed);
  }
  if (was_told && leader == known) return;
  was_told = true;
  known = leader;
  if (events.leader_changed) events.leader_changed(leader);
}

void EtcdLeadership::Impl::note_trouble(const Error& error) {
  last_trouble = error.what;
  if (std::exchange(is_troubled, true) || is_stopped) return;
  if (events.trouble) events.trouble(error);
}

void EtcdLeadership::Impl::note_answer() { is_troubled = false; }

EtcdLeadership::EtcdLeadership(asio::any_io_executor executor, LeadershipPlan plan,
                               LeadershipEvents events)
    : impl_{std::make_shared<Impl>(std::move(executor), std::move(plan), std::move(events))} {}

EtcdLeadership::~EtcdLeadership() { stop(); }

void EtcdLeadership::start() { impl_->start(); }

void EtcdLeadership::campaign(std::uint32_t lowest_term, Millis limit, Done<Campaign> done) {
  impl_->deliver(etcd_detail::campaign(impl_, lowest_term, clock_now() + limit), std::move(done));
}

bool EtcdLeadership::leads(Instant at) const { return impl_->tenure && at < impl_->tenure->until; }

std::optional<EtcdLeadership::TimeInOffice> EtcdLeadership::tenure() const {
  if (!impl_->tenure) return std::nullopt;
  return TimeInOffice{impl_->tenure->boot_asked, impl_->tenure->boot_until};
}

void EtcdLeadership::put_table(Epoch epoch, std::string bytes, Done<void> done) {
  impl_->writes.push_back({impl_->tenure, {epoch, std::move(bytes)}, std::move(done)});
  if (impl_->writes.size() == 1) impl_->write_tables();
}

void EtcdLeadership::read_table(Done<std::optional<CommittedTable>> done) {
  impl_->deliver(read_table_of(impl_), std::move(done));
}

void EtcdLeadership::resign(Done<void> done) {
  const auto tenure = impl_->tenure;
  if (tenure) impl_->leave(tenure);
  impl_->deliver(etcd_detail::resign(impl_, tenure), std::move(done));
}

void EtcdLeadership::end_job(Done<void> done) {
  const auto tenure = impl_->tenure;
  if (tenure) impl_->leave(tenure);
  impl_->deliver(etcd_detail::end_job(impl_, tenure), std::move(done));
}

void EtcdLeadership::stop() { impl_->stop(); }

}  // namespace acc::rendezvous
