#include "tests/simulation/etcd.hpp"

#include <algorithm>
#include <memory>

namespace acc::simulation {

using namespace rendezvous;

namespace {

constexpr Time kMilli{1'000'000};
constexpr std::int64_t kLeastTtl_s = 2;  // from its usual election timeout

}  // namespace

struct Etcd::Call {
  AskEtcd question;
  Path path;
  Done done;
  bool is_over = false;
  bool is_repeated = false;
};

void Etcd::ask(AskEtcd question, Path path, Done done) {
  const auto call =
      std::make_shared<Call>(Call{std::move(question), std::move(path), std::move(done)});
  queue_.after(Time{call->question.limit}, [call] {
    if (std::exchange(call->is_over, true)) return;
    call->done(Error{Errc::timed_out, "etcd: " + call->question.name + ": no answer"});
  });
  send(call);
}

Time Etcd::delay() {
  if (is_healed_ || random_.chance(0.8)) return between(random_, kMilli / 2, 3 * kMilli);
  return between(random_, Time{0}, random_.chance(0.5) ? 100 * kMilli : 1'500 * kMilli);
}

void Etcd::send(const std::shared_ptr<Call>& call) {
  queue_.after(delay(), [this, call] {
    if (call->path()) serve(call);
  });
}

void Etcd::serve(const std::shared_ptr<Call>& call) {
  if (queue_.now() < frozen_until_) {
    queue_.at(frozen_until_, [this, call] { serve(call); });
    return;
  }
  const EtcdAnswer reply =
      std::visit([this](const auto& what) { return answer(what); }, call->question.question);
  const bool is_lost = !is_healed_ && random_.chance(0.02);
  // The client asks the next member of the cluster.
  if (is_lost && !std::exchange(call->is_repeated, true) && random_.chance(0.5)) return send(call);
  queue_.after(delay(), [call, reply, is_lost] {
    if (is_lost || !call->path() || std::exchange(call->is_over, true)) return;
    call->done(reply);
  });
}

void Etcd::freeze(Time lasts) { frozen_until_ = std::max(frozen_until_, queue_.now() + lasts); }

void Etcd::heal() {
  is_healed_ = true;
  frozen_until_ = Time{0};
}

// ---- contents ----

bool Etcd::holds(const EtcdCompare& compare) const {
  const auto found = keys_.find(compare.key);
  const bool is_there = found != keys_.end();
  switch (compare.of) {
    case EtcdCompare::Of::created:
      return (is_there ? found->second.created : 0) == compare.revision;
    case EtcdCompare::Of::modified:
      return (is_there ? found->second.modified : 0) == compare.revision;
    case EtcdCompare::Of::value:
      return is_there && found->second.value == compare.value;
  }
  return false;
}

EtcdAnswer Etcd::answer(const EtcdTransaction& transaction) {
  EtcdTransactionReply reply;
  reply.succeeded =
      std::ranges::all_of(transaction.when, [this](const auto& one) { return holds(one); });
  const auto& operations = reply.succeeded ? transaction.then : transaction.otherwise;
  const bool changes = std::ranges::any_of(
      operations, [](const EtcdOperation& one) { return one.kind != EtcdOperation::Kind::get; });
  if (changes) ++revision_;
  reply.revision = revision_;
  for (const auto& one : operations) {
    auto& read = reply.reads.emplace_back();
    const auto found = keys_.find(one.key);
    switch (one.kind) {
      case EtcdOperation::Kind::get:
        if (found != keys_.end()) read = found->second;
        break;
      case EtcdOperation::Kind::put: {
        const auto created = found != keys_.end() ? found->second.created : revision_;
        keys_[one.key] = {one.key, one.value, created, revision_, one.lease};
        break;
      }
      case EtcdOperation::Kind::remove:
        // The leader key alone goes also while the job lives.
        if (keys_.erase(one.key) > 0 && one.key.ends_with("/term")) on_forgotten_();
        break;
    }
  }
  return reply;
}

EtcdAnswer Etcd::answer(const GrantLease& grant) {
  const auto id = ++last_lease_;
  const auto ttl_s = std::max(grant.ttl_s, kLeastTtl_s);
  leases_[id] = {ttl_s * kSecond, queue_.now() + ttl_s * kSecond};
  expire(id);
  return EtcdLease{id, ttl_s};
}

EtcdAnswer Etcd::answer(const KeepAlive& renewal) {
  const auto found = leases_.find(renewal.lease);
  if (found == leases_.end()) return EtcdLease{renewal.lease, 0};
  found->second.ends = queue_.now() + found->second.ttl;
  return EtcdLease{renewal.lease, found->second.ttl / kSecond};
}

EtcdAnswer Etcd::answer(const RevokeLease& revocation) {
  drop_lease(revocation.lease);
  return EtcdLease{revocation.lease, 0};
}

// Up to half a second late, like the real one.
void Etcd::expire(std::int64_t lease) {
  const Time ends = leases_.at(lease).ends + between(random_, Time{0}, 500 * kMilli);
  queue_.at(ends, [this, lease] {
    const auto found = leases_.find(lease);
    if (found == leases_.end()) return;
    if (found->second.ends > queue_.now()) return expire(lease);
    if (queue_.now() >= frozen_until_) return drop_lease(lease);
    queue_.at(frozen_until_, [this, lease] {
      if (leases_.contains(lease)) expire(lease);
    });
  });
}

void Etcd::drop_lease(std::int64_t lease) {
  if (leases_.erase(lease) == 0) return;
  ++revision_;
  std::erase_if(keys_, [lease](const auto& one) { return one.second.lease == lease; });
}

}  // namespace acc::simulation
