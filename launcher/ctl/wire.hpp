#pragma once

#include "common/duration.hpp"
#include "common/error.hpp"
#include "common/unique_fd.hpp"
#include "launcher/ctl/http_response.hpp"

#include <memory>
#include <optional>
#include <string>
#include <string_view>

/// Connections to the service and to agents, over unix sockets. Every wait has a deadline.
namespace acc::ctl {

inline constexpr Millis kAnswerPatience{15'000};

/// Ctrl-C as something to wait for. While one lives, SIGINT and SIGTERM only end waits that are
/// given it, and wait for one otherwise; SIGHUP works as ever.
class Interrupts {
 public:
  Interrupts();
  ~Interrupts();
  Interrupts(const Interrupts&) = delete;
  Interrupts& operator=(const Interrupts&) = delete;

  [[nodiscard]] int fd() const { return fd_.get(); }
  /// The signal that arrived; 0: none.
  [[nodiscard]] int take() const;

 private:
  UniqueFd fd_;
};

/// not_found: no socket is there; unavailable, ECONNREFUSED: nothing listens at it.
[[nodiscard]] Result<UniqueFd> connect_to(const std::string& socket);
/// A socket is there, and no process listens at it.
[[nodiscard]] bool is_nothing_listening(const Error& error);

/// One line to an agent's control socket, and its answer.
[[nodiscard]] Result<std::string> ask_agent(const std::string& socket, const std::string& line,
                                            Millis patience = kAnswerPatience);

struct HttpRequest {
  std::string method = "GET";
  std::string target{};
  std::string body{};     ///< JSON; empty: none
  std::string last_id{};  ///< Last-Event-ID
  std::optional<Millis> patience{};  ///< for its header; nothing: as long as it may take
};

/// As bytes; the connection is closed behind its answer.
[[nodiscard]] std::string encode(const HttpRequest& request);

enum class Arrived { data, end, lost, interrupted, timed_out };

/// One request, and its answer as it arrives.
class Exchange {
 public:
  /// Until the answer's header is there. A service that is stopped is told after 5 s.
  static Result<Exchange> open(const std::string& socket, const HttpRequest& request);

  [[nodiscard]] unsigned status() const { return response_->status(); }
  /// The first header of this name; empty: none.
  [[nodiscard]] std::string header(std::string_view name) const { return response_->header(name); }
  /// Waits for more of the body. `until` nothing: without end, as a stream may be silent.
  Arrived next(std::string& into, std::optional<Instant> until, const Interrupts* interrupts);

 private:
  Exchange(UniqueFd fd, std::string socket);

  UniqueFd fd_;
  std::string socket_;
  std::unique_ptr<HttpResponse> response_ = std::make_unique<HttpResponse>();
};

struct Answer {
  unsigned status = 0;
  std::string body;
};
/// A whole answer of at most 64 MiB.
[[nodiscard]] Result<Answer> ask_service(const std::string& socket, const HttpRequest& request);

/// All of `text` to `fd`, whose reader may be slow; false: it is gone, or `interrupts` came.
bool write_out(int fd, std::string_view text, const Interrupts* interrupts);
/// Why the standard output took no more; 0: it took all, or its reader left (`| head`).
[[nodiscard]] int output_failure();

}  // namespace acc::ctl
