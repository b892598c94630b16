#pragma once

#include "agent/daemon/http_connection.hpp"
#include "common/alive.hpp"
#include "common/unique_fd.hpp"

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/steady_timer.hpp>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>

namespace acc::agent::daemon {

struct HttpSettings {
  HttpLimits limits;
  HttpTimes times;
  uid_t own = 0;  ///< the daemon's user
};

/// Accepts connections of a unix socket and runs them. One thread.
class HttpServer {
 public:
  HttpServer(boost::asio::io_context& io, HttpSettings settings, HttpHandler handler);
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  void listen(UniqueFd listening);
  /// A connection that another listener accepted. False: there are too many, and it was told so.
  bool serve(std::unique_ptr<ByteStream> stream, Principal who);
  [[nodiscard]] bool is_listening() const { return listener_.is_open(); }
  /// No new connections; those that are there end after the reply they wait for. Calls `done` when
  /// all have.
  void stop(std::function<void()> done);
  [[nodiscard]] std::size_t connections() const { return connections_.size(); }

 private:
  using Descriptor = boost::asio::posix::stream_descriptor;

  void accept_later();
  void accept_waiting();
  void take(UniqueFd fd);
  void run(std::unique_ptr<ByteStream> stream, Principal who);
  void ended(std::uint64_t number, uid_t uid);

  boost::asio::io_context& io_;
  std::shared_ptr<HttpShared> shared_;
  Descriptor listener_;
  boost::asio::steady_timer pause_;
  std::map<std::uint64_t, std::unique_ptr<HttpConnection>> connections_;
  std::uint64_t next_number_ = 0;
  std::function<void()> stopped_;
  bool told_shortage_ = false;
  Alive alive_;
};

}  // namespace acc::agent::daemon
