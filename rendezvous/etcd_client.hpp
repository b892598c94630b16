#pragma once

#include "common/duration.hpp"
#include "common/error.hpp"
#include "rendezvous/etcd_http.hpp"
#include "rendezvous/etcd_json.hpp"

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace acc::rendezvous {

/// "http://a:2379,b,[::1]:2400": one cluster's members; http and port 2379 unless said otherwise.
[[nodiscard]] Result<std::vector<EtcdEndpoint>> parse_etcd_endpoints(std::string_view list);

/// Every request has a name, which errors tell, and a limit.
struct EtcdCall {
  std::string name;  ///< "renew the lease of job 'j7'"
  Millis limit{5'000};
};

/// Talks to an etcd cluster over its JSON gateway. A member that doesn't answer is passed over for
/// the next, within the limit of the request; the one that answered is asked first from then on.
///
/// A request whose answer got lost may have been carried out: who can't bear that uses a
/// transaction with conditions. Errors name the endpoints and the cure. One thread.
class EtcdClient {
 public:
  /// @param endpoints  at least one.
  EtcdClient(boost::asio::any_io_executor executor, std::vector<EtcdEndpoint> endpoints);
  ~EtcdClient();
  EtcdClient(const EtcdClient&) = delete;
  EtcdClient& operator=(const EtcdClient&) = delete;

  template <class T>
  using Answer = boost::asio::awaitable<Result<T>>;

  Answer<EtcdRead> range(std::string key, EtcdCall call);
  /// @param lease  0: the key stays. @return the revision of the change.
  Answer<std::int64_t> put(std::string key, std::string value, std::int64_t lease, EtcdCall call);
  Answer<EtcdTransactionReply> transact(EtcdTransaction transaction, EtcdCall call);

  /// etcd grants 2 s at least (by its election timeout), whatever is asked for.
  Answer<EtcdLease> grant(std::int64_t ttl_s, EtcdCall call);
  /// A lease that is gone has ttl_s 0.
  Answer<EtcdLease> keep_alive(std::int64_t lease, EtcdCall call);
  /// Its keys go with it. A lease that is gone already is an error.
  Answer<std::int64_t> revoke(std::int64_t lease, EtcdCall call);

  using OnEvent = std::function<void(const EtcdEvent&)>;
  /// Tells every change from that revision on until the stream breaks, which etcd may do at any
  /// time: read the key again and watch anew. The limit is for the opening.
  /// @return why it broke.
  boost::asio::awaitable<Error> watch(std::string key, std::int64_t from_revision, OnEvent on_event,
                                      EtcdCall opening);
  /// Breaks all watches.
  void break_watches();
  /// A watch stands on another member than the one that answers now.
  [[nodiscard]] bool watch_is_elsewhere() const;

  /// Ends everything, for ever; who awaits gets an error. The destructor does the same.
  void stop();

  struct State;

 private:
  std::shared_ptr<State> state_;
};

}  // namespace acc::rendezvous
