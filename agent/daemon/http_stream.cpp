#include "agent/daemon/http_stream.hpp"

#include "common/poll_now.hpp"

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/buffer.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>

#include <sys/socket.h>

#include <type_traits>
#include <utility>

namespace acc::agent::daemon {

namespace asio = boost::asio;

namespace {

constexpr auto kStreamResult = asio::as_tuple(asio::use_awaitable);

template <class Protocol>
class SocketStream final : public ByteStream {
 public:
  using Socket = typename Protocol::socket;

  SocketStream(const asio::any_io_executor& executor, Protocol protocol, UniqueFd connected)
      : socket_{executor, protocol, connected.release()} {}

  asio::awaitable<std::size_t> read_some(std::span<char> into) override {
    const auto [error, n] =
        co_await socket_.async_read_some(asio::buffer(into.data(), into.size()), kStreamResult);
    co_return error ? 0 : n;
  }
  asio::awaitable<bool> write(std::string_view bytes) override {
    const auto [error, n] = co_await asio::async_write(
        socket_, asio::buffer(bytes.data(), bytes.size()), kStreamResult);
    co_return !error && n == bytes.size();
  }
  void try_write(std::string_view bytes) override {
    ::send(socket_.native_handle(), bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
  }
  void watch(std::function<void()> gone) override {
    // TCP reports the end of the client's side alone, as bytes that are none. A client that reads a
    // stream and ends its own side is taken for gone there, as by other servers.
    constexpr bool is_unix = std::is_same_v<Protocol, asio::local::stream_protocol>;
    socket_.async_wait(is_unix ? Socket::wait_error : Socket::wait_read,
                       [this, gone = std::move(gone)](boost::system::error_code error) mutable {
                         if (error) return;
                         switch (look()) {
                           case Peer::silent:
                             return watch(std::move(gone));
                           case Peer::gone:
                             return gone();
                           case Peer::wrote:
                             return;
                         }
                       });
  }
  bool is_gone() override {
    return std::is_same_v<Protocol, asio::local::stream_protocol> && look() == Peer::gone;
  }
  void cancel() override {
    boost::system::error_code ignored;
    socket_.cancel(ignored);
  }
  void end_writing() override {
    boost::system::error_code ignored;
    socket_.shutdown(Socket::shutdown_send, ignored);
  }
  void close() override {
    boost::system::error_code ignored;
    socket_.close(ignored);
  }

 private:
  enum class Peer {
    gone,
    wrote,   ///< a next request, early: the end is noticed by writing then
    silent,  ///< Asio told of nothing (common/poll_now.hpp)
  };
  [[nodiscard]] Peer look() {
    const int fd = socket_.native_handle();
    if (std::is_same_v<Protocol, asio::local::stream_protocol>)
      return is_ready(fd, 0) ? Peer::gone : Peer::silent;
    if (!is_ready(fd, POLLIN)) return Peer::silent;
    char byte = 0;
    return ::recv(fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) > 0 ? Peer::wrote : Peer::gone;
  }

  Socket socket_;
};

}  // namespace

std::unique_ptr<ByteStream> unix_stream(asio::any_io_executor executor, UniqueFd connected) {
  return std::make_unique<SocketStream<asio::local::stream_protocol>>(
      executor, asio::local::stream_protocol{}, std::move(connected));
}

std::unique_ptr<ByteStream> tcp_stream(asio::any_io_executor executor, UniqueFd connected,
                                       bool is_v6) {
  using asio::ip::tcp;
  return std::make_unique<SocketStream<tcp>>(executor, is_v6 ? tcp::v6() : tcp::v4(),
                                             std::move(connected));
}

}  // namespace acc::agent::daemon
