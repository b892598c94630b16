#pragma once

#include "agent/accept_loop.hpp"
#include "agent/daemon/http_connection.hpp"
#include "agent/daemon/quota_owners.hpp"
#include "common/alive.hpp"
#include "common/error.hpp"
#include "common/unique_fd.hpp"

#include <boost/asio/io_context.hpp>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>

namespace acc::agent::daemon {

struct HttpSettings {
  HttpLimits limits;
  HttpTimes times;
  uid_t own = 0;                  ///< the daemon's user
  /// The uid that the kernel tells of all users that this user namespace doesn't map: refused.
  std::optional<uid_t> unmapped{};
  QuotaOwners* owners = nullptr;  ///< outlives the server; null: each uid has a share of its own
};

/// Accepts connections of a unix socket and runs them. One thread.
class HttpServer {
 public:
  HttpServer(boost::asio::io_context& io, HttpSettings settings, HttpHandler handler);
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  [[nodiscard]] Result<void> listen(UniqueFd listening);
  /// A connection that another listener accepted. False: there are too many, and it was told so.
  /// With `owners` it may be told so later.
  bool serve(std::unique_ptr<ByteStream> stream, Principal who);
  [[nodiscard]] bool is_listening() const { return accepting_.is_accepting(); }
  /// No new connections; those that are there end after the reply they wait for. Calls `done` when
  /// all have.
  void stop(std::function<void()> done);
  [[nodiscard]] std::size_t connections() const { return connections_.size(); }

 private:
  struct Held {
    std::unique_ptr<HttpConnection> connection;
    uid_t owner = 0;
    bool is_counted = true;  ///< false: its place was given to another, and it is on its way out
  };
  void take(UniqueFd fd);
  bool admit(std::unique_ptr<ByteStream> stream, Principal who);
  void turn_away(std::unique_ptr<ByteStream> stream, const std::string& words);
  bool take_place(uid_t owner);
  /// A connection of who holds most; false: there is none that may be ended.
  bool end_one_for(uid_t owner);
  void run(std::unique_ptr<ByteStream> stream, Principal who);
  void ended(std::uint64_t number);

  boost::asio::io_context& io_;
  std::shared_ptr<HttpShared> shared_;
  QuotaOwners* owners_;
  std::optional<uid_t> unmapped_;
  std::size_t turned_away_ = 0;  ///< connections that wait for their last bytes
  std::map<std::uint64_t, Held> connections_;
  Instant next_word_{};  ///< of places that were given to others
  std::uint64_t next_number_ = 0;
  std::function<void()> stopped_;
  bool is_stopped_ = false;
  AcceptLoop accepting_;
  Alive alive_;
};

}  // namespace acc::agent::daemon
