#pragma once

#include "common/error.hpp"
#include "common/unique_fd.hpp"
#include "launcher/ctl/http_response.hpp"
#include "launcher/ctl/wire.hpp"

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

namespace acc::ctl {

enum class Received {
  nothing,  ///< yet
  data,     ///< a piece of the body
  end,      ///< the answer is complete; a piece of the body may be there
  lost      ///< the connection ended early, or the answer is no HTTP
};

/// One HTTP request and its answer for a loop that polls many descriptors: nothing here waits but
/// the connection to a busy daemon. (`Exchange` is the one that waits.)
class NonblockingExchange {
 public:
  static constexpr std::size_t kChunk = std::size_t{64} << 10U;  ///< most bytes of one receive()

  static Result<std::unique_ptr<NonblockingExchange>> begin(const std::string& socket,
                                                            const HttpRequest& request);

  /// What to poll, and for which events.
  [[nodiscard]] int fd() const { return fd_.get(); }
  [[nodiscard]] short wants() const;
  /// Of the answer; 0: its header isn't there yet.
  [[nodiscard]] unsigned status() const;
  /// The first header of this name; empty: none.
  [[nodiscard]] std::string header(std::string_view name) const { return response_.header(name); }

  /// Sends and receives what the descriptor is ready for. @param into  what arrived of the body
  Received receive(std::string& into);

 private:
  NonblockingExchange(UniqueFd fd, std::string request);
  bool send_some();

  UniqueFd fd_;
  std::string unsent_;
  HttpResponse response_;
};

}  // namespace acc::ctl
