#pragma once

#include "common/duration.hpp"
#include "common/error.hpp"

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

namespace acc::rendezvous {

/// Where one member of the etcd cluster serves its clients.
struct EtcdEndpoint {
  std::string host;
  std::uint16_t port = 2379;
  friend bool operator==(const EtcdEndpoint&, const EtcdEndpoint&) = default;
};
/// "http://host:2379"
std::string to_string(const EtcdEndpoint& endpoint);

struct HttpReply {
  unsigned status = 0;
  std::string body;
};

/// HTTP POSTs of JSON, each on a connection of its own: at one request a second a kept connection
/// saves nothing, and a new one notices at once that the other end is another.
/// Names are resolved again each time. One thread; stop() ends all that is under way.
class EtcdHttp {
 public:
  explicit EtcdHttp(boost::asio::any_io_executor executor);
  ~EtcdHttp();
  EtcdHttp(const EtcdHttp&) = delete;
  EtcdHttp& operator=(const EtcdHttp&) = delete;

  struct Request {
    EtcdEndpoint endpoint;
    std::string path;
    std::string body;
    Instant deadline;
  };
  /// Gets each piece of a stream as it comes. @return false: enough, hang up.
  using Piece = std::function<bool(std::string_view)>;

  /// @param longest  bytes of a reply; a longer one is an error.
  boost::asio::awaitable<Result<HttpReply>> post(Request request, std::size_t longest);
  /// Goes on until the stream ends; what it returns says why. The deadline is for the first piece.
  /// A reply that isn't 200 comes back as such.
  boost::asio::awaitable<Result<HttpReply>> stream(Request request, Piece piece);

  /// Ends all streams; the next request is not concerned.
  void end_streams();
  /// Ends all, for ever. At once; who awaits gets an error.
  void stop();

  struct State;

 private:
  std::shared_ptr<State> state_;
};

}  // namespace acc::rendezvous
