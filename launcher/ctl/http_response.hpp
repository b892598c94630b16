#pragma once

#include "common/error.hpp"

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace acc::ctl {

inline constexpr unsigned kHttpOk = 200;
inline constexpr unsigned kHttpCreated = 201;
inline constexpr unsigned kHttpAccepted = 202;
inline constexpr unsigned kHttpRedirect = 300;  ///< and above: not what was asked for
inline constexpr unsigned kHttpBadRequest = 400;
inline constexpr unsigned kHttpNotFound = 404;
inline constexpr unsigned kHttpConflict = 409;
inline constexpr unsigned kHttpRangeNotSatisfiable = 416;
inline constexpr unsigned kHttpTooManyRequests = 429;
inline constexpr unsigned kHttpInternalError = 500;
inline constexpr unsigned kHttpBadGateway = 502;
inline constexpr unsigned kHttpUnavailable = 503;
inline constexpr unsigned kHttpGatewayTimeout = 504;

/// One HTTP/1.1 response from its bytes, in pieces as they arrive; the body may be endless. Total.
class HttpResponse {
 public:
  HttpResponse();
  ~HttpResponse();
  HttpResponse(const HttpResponse&) = delete;
  HttpResponse& operator=(const HttpResponse&) = delete;

  /// An error: this is no HTTP, or its header is too long.
  Result<void> feed(std::string_view bytes);
  /// The connection ended. @return whether the response is complete
  bool end();
  [[nodiscard]] bool has_header() const;
  [[nodiscard]] bool is_done() const;
  [[nodiscard]] unsigned status() const;
  /// The first header of this name; empty: none.
  [[nodiscard]] std::string header(std::string_view name) const;
  /// What arrived of the body since the last call.
  [[nodiscard]] std::string take_body();

 private:
  struct Parser;
  std::unique_ptr<Parser> parser_;
};

}  // namespace acc::ctl
