#pragma once

#include "rendezvous/etcd_credentials.hpp"
#include "rendezvous/etcd_http.hpp"
#include "rendezvous/leadership.hpp"

#include <boost/asio/any_io_executor.hpp>

#include <functional>
#include <memory>
#include <optional>
#include <vector>

namespace acc::rendezvous {

/// Addresses of an etcd, and the credentials for it.
struct EtcdServers {
  std::vector<EtcdEndpoint> endpoints;  ///< at least one
  EtcdCredentials credentials{};
};

/// Called on the loop, never from within a call of the owner. Each may be empty.
struct LeadershipEvents {
  std::function<void(const Leader&)> follow;
  std::function<void(const BecomeLeader&)> lead;
  std::function<void(const std::string& why)> stop_leading;
  std::function<void(const Epoch&)> committed;
  std::function<void(const std::string&)> trouble;
};

/// A Leadership (leadership.hpp) connected to a real etcd. Taking over from a lost leader takes
/// ttl, at least 2 s (etcd's smallest lease), plus up to 1 s. One thread; no event after the end of
/// this object.
class EtcdLeadership {
 public:
  EtcdLeadership(boost::asio::any_io_executor executor, EtcdServers servers,
                 LeadershipOptions options, LeadershipEvents events);
  ~EtcdLeadership();
  EtcdLeadership(const EtcdLeadership&) = delete;
  EtcdLeadership& operator=(const EtcdLeadership&) = delete;

  // as in Leadership
  void begin();
  void commit(const RoundRecord& record);
  void resign();
  void end(bool is_over, std::function<void(const std::optional<Error>&)> done);
  [[nodiscard]] std::optional<Leadership::LeadershipTerm> leadership_term() const;

  struct Impl;

 private:
  std::shared_ptr<Impl> impl_;
};

}  // namespace acc::rendezvous
