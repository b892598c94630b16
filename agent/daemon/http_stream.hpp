#pragma once

#include "common/unique_fd.hpp"

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string_view>

namespace acc::agent::daemon {

/// A connection's bytes: what the HTTP server needs of a unix socket, TCP or TLS. One read and one
/// write at a time.
class ByteStream {
 public:
  virtual ~ByteStream() = default;
  /// 0: the client has ended its side, the connection broke, or cancel() was called.
  virtual boost::asio::awaitable<std::size_t> read_some(std::span<char> into) = 0;
  /// All of `bytes`; false as above.
  virtual boost::asio::awaitable<bool> write(std::string_view bytes) = 0;
  /// As much as goes without waiting: last words.
  virtual void try_write(std::string_view bytes) = 0;
  /// Calls `gone` once, when the client can read no more: it closed the connection, in place of
  /// merely ending its side. Needs no read.
  virtual void watch(std::function<void()> gone) = 0;
  /// Whether it has gone already, as far as that is known at once: of a client here.
  [[nodiscard]] virtual bool is_gone() { return false; }
  /// Ends what is pending; later operations work.
  virtual void cancel() = 0;
  virtual void end_writing() = 0;
  virtual void close() = 0;
};

[[nodiscard]] std::unique_ptr<ByteStream> unix_stream(boost::asio::any_io_executor executor,
                                                      UniqueFd connected);
/// @param is_v6  the socket's family
[[nodiscard]] std::unique_ptr<ByteStream> tcp_stream(boost::asio::any_io_executor executor,
                                                     UniqueFd connected, bool is_v6);

}  // namespace acc::agent::daemon
