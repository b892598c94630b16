#pragma once

#include "common/duration.hpp"
#include "common/error.hpp"

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace acc::rendezvous {

/// Client address of one member of the etcd cluster.
struct EtcdEndpoint {
  std::string host;
  std::uint16_t port = 2379;
  bool is_tls = false;
  friend bool operator==(const EtcdEndpoint&, const EtcdEndpoint&) = default;
};
/// "https://host:2379"
std::string to_string(const EtcdEndpoint& endpoint);

struct HttpReply {
  unsigned status = 0;
  std::string body;
};

class EtcdTls;

/// HTTP POSTs of JSON, each on its own connection: at one request a second a persistent connection
/// saves nothing, and a new one notices immediately that the server was replaced. Names are
/// resolved each time. One thread; stop() ends all pending requests.
class EtcdHttp {
 public:
  /// @param tls  for endpoints with is_tls; may be empty if there are none.
  EtcdHttp(boost::asio::any_io_executor executor, std::shared_ptr<EtcdTls> tls);
  ~EtcdHttp();
  EtcdHttp(const EtcdHttp&) = delete;
  EtcdHttp& operator=(const EtcdHttp&) = delete;

  struct Request {
    EtcdEndpoint endpoint;
    std::string path;
    std::string body;
    std::string token;  ///< of a user; empty: none
    Instant deadline;
  };
  /// @param longest  maximum size of a reply in bytes; a longer one is an error.
  boost::asio::awaitable<Result<HttpReply>> post(Request request, std::size_t longest);

  /// Ends everything permanently and immediately; pending requests get an error.
  void stop();

  struct State;

 private:
  std::shared_ptr<State> state_;
};

}  // namespace acc::rendezvous
