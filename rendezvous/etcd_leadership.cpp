#include "rendezvous/etcd_leadership.hpp"

#include "common/clocks.hpp"
#include "rendezvous/etcd_client.hpp"

#include <boost/asio/awaitable.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>

#include <exception>
#include <utility>

namespace acc::rendezvous {

namespace asio = boost::asio;

/// Held by the coroutines of pending requests, which never hold the outer object.
struct EtcdLeadership::Impl : std::enable_shared_from_this<Impl> {
  Impl(asio::any_io_executor e, EtcdServers servers, LeadershipOptions options,
       LeadershipEvents told)
      : executor{std::move(e)},
        machine{std::move(options)},
        events{std::move(told)},
        client{executor, std::move(servers.endpoints), std::move(servers.credentials)},
        timer{executor} {}

  asio::any_io_executor executor;
  Leadership machine;
  LeadershipEvents events;
  std::function<void(const std::optional<Error>&)> on_end;
  EtcdClient client;
  asio::steady_timer timer;
  Instant armed = Instant::max();
  bool is_stopped = false;

  void perform(LeadershipActions actions) {
    for (auto& action : actions) {
      if (auto* const question = std::get_if<AskEtcd>(&action)) {
        ask(std::move(*question));
        continue;
      }
      asio::post(executor, [self = shared_from_this(), action = std::move(action)] {
        if (!self->is_stopped) std::visit([&](const auto& a) { self->tell(a); }, action);
      });
    }
    arm();
  }

  // The timer may fire early, never late: it is only ever set to an earlier time.
  void arm() {
    const Instant due = machine.next_deadline();
    if (due == Instant::max()) return;
    const Instant next = clock_now() + (due - boot_now());
    if (next >= armed) return;
    armed = next;
    timer.expires_at(next);
    timer.async_wait([weak = weak_from_this()](boost::system::error_code error) {
      const auto self = weak.lock();
      if (error || !self || self->is_stopped) return;
      self->armed = Instant::max();
      self->perform(self->machine.tick(boot_now()));
    });
  }

  void ask(AskEtcd question);

  void tell(const AskEtcd&) {}
  void tell(const FollowLeader& a) const {
    if (events.follow) events.follow(a.leader);
  }
  void tell(const BecomeLeader& a) const {
    if (events.lead) events.lead(a);
  }
  void tell(const StopLeading& a) const {
    if (events.stop_leading) events.stop_leading(a.why);
  }
  void tell(const RoundCommitted& a) const {
    if (events.committed) events.committed(a.epoch);
  }
  void tell(const EtcdTrouble& a) const {
    if (events.trouble) events.trouble(a.text);
  }
  void tell(const LeadershipEnded& a) {
    if (const auto done = std::exchange(on_end, {})) done(a.problem);
  }
};

namespace {

using Self = std::shared_ptr<EtcdLeadership::Impl>;

template <class Reply>
Result<EtcdAnswer> answer_of(Result<Reply> reply) {
  if (!reply) return reply.error();
  return EtcdAnswer{std::move(*reply)};
}

asio::awaitable<Result<EtcdAnswer>> pose(Self self, EtcdTransaction transaction, EtcdCall call) {
  auto reply = co_await self->client.transact(std::move(transaction), std::move(call));
  co_return answer_of(std::move(reply));
}
asio::awaitable<Result<EtcdAnswer>> pose(Self self, GrantLease grant, EtcdCall call) {
  auto lease = co_await self->client.grant(grant.ttl_s, std::move(call));
  co_return answer_of(std::move(lease));
}
asio::awaitable<Result<EtcdAnswer>> pose(Self self, KeepAlive renewal, EtcdCall call) {
  auto lease = co_await self->client.keep_alive(renewal.lease, std::move(call));
  co_return answer_of(std::move(lease));
}
asio::awaitable<Result<EtcdAnswer>> pose(Self self, RevokeLease revocation, EtcdCall call) {
  const auto revision = co_await self->client.revoke(revocation.lease, std::move(call));
  if (!revision) co_return revision.error();
  co_return EtcdAnswer{EtcdLease{revocation.lease, 0}};
}

}  // namespace

void EtcdLeadership::Impl::ask(AskEtcd question) {
  const auto self = shared_from_this();
  const auto done = [self, id = question.id](std::exception_ptr bug, Result<EtcdAnswer> answer) {
    if (bug) std::rethrow_exception(bug);
    if (!self->is_stopped) self->perform(self->machine.answered(id, answer, boot_now()));
  };
  EtcdCall call{std::move(question.name), question.limit};
  std::visit(
      [&](auto& what) {
        asio::co_spawn(executor, pose(self, std::move(what), std::move(call)), done);
      },
      question.question);
}

EtcdLeadership::EtcdLeadership(asio::any_io_executor executor, EtcdServers servers,
                               LeadershipOptions options, LeadershipEvents events)
    : impl_{std::make_shared<Impl>(std::move(executor), std::move(servers), std::move(options),
                                   std::move(events))} {}

// Sends nothing to etcd, like a crash.
EtcdLeadership::~EtcdLeadership() {
  impl_->is_stopped = true;
  impl_->timer.cancel();
  impl_->client.stop();
}

void EtcdLeadership::begin() { impl_->perform(impl_->machine.begin(boot_now())); }

void EtcdLeadership::commit(const RoundRecord& record) {
  impl_->perform(impl_->machine.commit(record, boot_now()));
}

void EtcdLeadership::resign() { impl_->perform(impl_->machine.resign(boot_now())); }

void EtcdLeadership::end(bool is_over, std::function<void(const std::optional<Error>&)> done) {
  impl_->on_end = std::move(done);
  impl_->perform(impl_->machine.end(is_over, boot_now()));
}

std::optional<Leadership::LeadershipTerm> EtcdLeadership::leadership_term() const {
  return impl_->machine.leadership_term();
}

}  // namespace acc::rendezvous
