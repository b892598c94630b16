#pragma once

#include <boost/asio/awaitable.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace acc::agent::daemon {

struct HttpRequest {
  std::string method;                 ///< as it came: "GET"
  std::string target;                 ///< as it came, for messages: "/v1/jobs?x=1"
  std::vector<std::string> segments;  ///< of the path, percent-decoded: {"v1", "jobs"}
  std::vector<std::pair<std::string, std::string>> query;    ///< decoded, in order
  std::vector<std::pair<std::string, std::string>> headers;  ///< names in lower case
  std::string body;
  bool is_http_1_0 = false;
  bool keeps_alive = true;

  /// The first header of this name (in lower case).
  [[nodiscard]] std::optional<std::string_view> header(std::string_view name) const;
};

/// Why a request is answered with an error: the status, and a sentence for a user.
struct HttpRefusal {
  unsigned status = 0;
  std::string what;
};

/// What a handler writes a long answer to. One coroutine writes; notify() may be called from any
/// handler of the loop.
class BodyWriter {
 public:
  virtual ~BodyWriter() = default;
  /// Returns when the kernel has taken all of it: a client that doesn't read suspends its handler.
  /// False: the client has gone, or the server is stopping; nothing more can be written.
  virtual boost::asio::awaitable<bool> write(std::string_view bytes) = 0;
  [[nodiscard]] virtual bool is_open() const = 0;
  /// Until notify(), the end of the connection, or `until`.
  virtual boost::asio::awaitable<void> wait(std::chrono::steady_clock::time_point until) = 0;
  virtual void notify() = 0;
  /// Calls `told` once when nothing more can be written, at once if it is so already: for a writer
  /// that waits for something else than this.
  virtual void when_closed(std::function<void()> told) = 0;
  /// The body ends before its end: the client must see that it isn't whole.
  virtual void break_off() = 0;
};

struct HttpReply {
  unsigned status = 200;
  std::string content_type = "application/json";
  std::string body;
  std::vector<std::pair<std::string, std::string>> headers;
  /// In place of `body`: writes it as it arises. Held alive until it has returned.
  std::function<boost::asio::awaitable<void>(std::shared_ptr<BodyWriter>)> stream;
  /// In place of `body`: makes it, of about `late_bytes` at most. Called when the connection has
  /// the memory for it, and one after the other for each user, so that other requests are answered
  /// between two of them; not called for a reply that is refused.
  std::function<std::string()> late_body;
  std::size_t late_bytes = 0;
  bool closes = false;  ///< the connection, after this reply
};

/// "Not Found"
[[nodiscard]] std::string_view reason_phrase(unsigned status);
/// `code` of the error body: "not_found"
[[nodiscard]] std::string_view error_code_of(unsigned status);

/// Status line and headers. `body_size`: nothing for a streamed body.
[[nodiscard]] std::string reply_head(const HttpReply& reply, std::optional<std::size_t> body_size,
                                     bool is_chunked, bool keeps_alive);

/// Splits a request target into decoded path segments and query; false if it isn't one.
bool parse_target(std::string_view target, HttpRequest& into);

}  // namespace acc::agent::daemon
