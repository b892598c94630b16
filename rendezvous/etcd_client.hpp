#pragma once

#include "common/duration.hpp"
#include "common/error.hpp"
#include "rendezvous/etcd_credentials.hpp"
#include "rendezvous/etcd_http.hpp"
#include "rendezvous/etcd_json.hpp"

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace acc::rendezvous {

/// "https://a:2379,b,[::1]:2400": the members of one cluster; default: http and port 2379.
[[nodiscard]] Result<std::vector<EtcdEndpoint>> parse_etcd_endpoints(std::string_view list);

/// Each request has a name, used in errors, and a time limit.
struct EtcdCall {
  std::string name;  ///< "renew the lease of job 'j7'"
  Millis limit{5'000};
};

/// Client of an etcd cluster over its JSON gateway. A member that doesn't answer is skipped for the
/// next, within the request's limit; the one that answered is asked first from then on.
///
/// A request whose answer got lost may have been carried out: a caller that can't accept that uses
/// a transaction with conditions. With a user, each request carries the token of a login, which is
/// repeated when etcd doesn't know the token any more. Errors name the endpoints and the cure. One
/// thread.
class EtcdClient {
 public:
  /// @param endpoints  at least one.
  EtcdClient(boost::asio::any_io_executor executor, std::vector<EtcdEndpoint> endpoints,
             EtcdCredentials credentials = {});
  ~EtcdClient();
  EtcdClient(const EtcdClient&) = delete;
  EtcdClient& operator=(const EtcdClient&) = delete;

  template <class T>
  using Answer = boost::asio::awaitable<Result<T>>;

  Answer<EtcdRead> range(std::string key, EtcdCall call);
  /// @param lease  0: the key is permanent. @return the revision of the change.
  Answer<std::int64_t> put(std::string key, std::string value, std::int64_t lease, EtcdCall call);
  Answer<EtcdTransactionReply> transact(EtcdTransaction transaction, EtcdCall call);

  /// etcd grants at least 2 s (from its election timeout), whatever is requested.
  Answer<EtcdLease> grant(std::int64_t ttl_s, EtcdCall call);
  /// A lease that no longer exists has ttl_s 0.
  Answer<EtcdLease> keep_alive(std::int64_t lease, EtcdCall call);
  /// Removes its keys, too. A lease that no longer exists is an error.
  Answer<std::int64_t> revoke(std::int64_t lease, EtcdCall call);

  /// Ends everything permanently; pending requests get an error. The destructor does the same.
  void stop();

  struct State;

 private:
  std::shared_ptr<State> state_;
};

}  // namespace acc::rendezvous
