#pragma once

#include "common/error.hpp"

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

namespace boost::asio {
class io_context;
}

namespace acc::agent {

/// The reply to a request's head, whatever its bytes (pure). @param render  called only for what
/// wants the metrics
[[nodiscard]] std::string metrics_reply(std::string_view request,
                                        const std::function<std::string()>& render);

/// Answers GET /metrics over HTTP on a TCP port (--metrics), one request a connection, and nothing
/// else. Any client may ask: it changes nothing, and what it costs is bounded (16 connections, 8
/// KiB and 5 s a request). Without a request nothing wakes up.
///
/// Used on the loop's thread only. The io_context outlives it.
class MetricsServer {
 public:
  /// @param render  called for each request
  MetricsServer(boost::asio::io_context& io, std::function<std::string()> render);
  ~MetricsServer();
  MetricsServer(const MetricsServer&) = delete;
  MetricsServer& operator=(const MetricsServer&) = delete;

  /// @param host  address of an interface of this machine; 0.0.0.0 or :: are all of them
  /// @param port  0: any
  /// @return the URL
  Result<std::string> listen(const std::string& host, std::uint16_t port);
  /// No new connections; those that are there end.
  void close();

 private:
  class Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace acc::agent
