#pragma once

#include "agent/daemon/http_message.hpp"

#include <cstddef>
#include <memory>
#include <string_view>

namespace acc::agent::daemon {

inline constexpr std::size_t kMostHeaderBytes = 8 * 1024;
inline constexpr std::size_t kMostBodyBytes = 1024 * 1024;

/// One request out of bytes that arrive in any pieces; total, and bounded in memory. Beast's
/// parser, without its streams and containers.
class RequestParser {
 public:
  enum class Step {
    needs_more,  ///< more bytes behind those that were not consumed
    has_header,  ///< once: the body follows; request() has all but the body
    done,
    refused,  ///< see refusal(); the rest of the connection can't be read
  };
  RequestParser();
  ~RequestParser();
  RequestParser(const RequestParser&) = delete;
  RequestParser& operator=(const RequestParser&) = delete;

  /// @param consumed  bytes from the front of `bytes` that must not be given again; the others must
  Step feed(std::string_view bytes, std::size_t& consumed);
  [[nodiscard]] HttpRequest& request();
  [[nodiscard]] const HttpRefusal& refusal() const;
  /// The client waits for "100 Continue" before it sends the body.
  [[nodiscard]] bool expects_continue() const;
  /// Declared bytes of the body; the maximum for a chunked one, 0 if there is none.
  [[nodiscard]] std::size_t body_reserve() const;
  /// A body of unknown length would follow without either header: there is none.
  [[nodiscard]] bool has_length() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace acc::agent::daemon
