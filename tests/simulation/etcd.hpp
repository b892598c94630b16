#pragma once

#include "rendezvous/leadership.hpp"
#include "tests/simulation/event_queue.hpp"
#include "tests/simulation/random.hpp"

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace acc::simulation {

/// etcd in memory, as far as rendezvous::Leadership uses it: keys, revisions, transactions, leases.
/// Requests and answers take time, and may get lost or be late.
class Etcd {
 public:
  /// Whether a packet would pass now between etcd and the client.
  using Path = std::function<bool()>;
  using Done = std::function<void(const Result<rendezvous::EtcdAnswer>&)>;

  /// `on_forgotten` is called when the keys of a job are removed at its end.
  Etcd(EventQueue& queue, Random random, std::function<void()> on_forgotten)
      : queue_{queue}, random_{random}, on_forgotten_{std::move(on_forgotten)} {}

  /// `done` is called once, within the limit.
  void ask(rendezvous::AskEtcd question, Path path, Done done);
  /// Stops it with its clock running: requests of that time are answered when it continues.
  void freeze(Time lasts);
  /// From now on nothing is lost or slow.
  void heal();

 private:
  struct Lease {
    Time ttl{0};
    Time ends{0};
  };
  struct Call;
  void send(const std::shared_ptr<Call>& call);
  void serve(const std::shared_ptr<Call>& call);
  [[nodiscard]] Time delay();
  void expire(std::int64_t lease);
  void drop_lease(std::int64_t lease);
  [[nodiscard]] bool holds(const rendezvous::EtcdCompare& compare) const;
  rendezvous::EtcdAnswer answer(const rendezvous::EtcdTransaction& transaction);
  rendezvous::EtcdAnswer answer(const rendezvous::GrantLease& grant);
  rendezvous::EtcdAnswer answer(const rendezvous::KeepAlive& renewal);
  rendezvous::EtcdAnswer answer(const rendezvous::RevokeLease& revocation);

  EventQueue& queue_;
  Random random_;
  std::function<void()> on_forgotten_;
  bool is_healed_ = false;
  Time frozen_until_{0};
  std::int64_t revision_ = 1;
  std::int64_t last_lease_ = 0;
  std::map<std::string, rendezvous::EtcdEntry> keys_;
  std::map<std::int64_t, Lease> leases_;
};

}  // namespace acc::simulation
