#pragma once

#include "common/error.hpp"

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace acc::ctl {

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
