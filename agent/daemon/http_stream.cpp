#include "agent/daemon/http_stream.hpp"

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/buffer.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>

#include <sys/socket.h>

#include <utility>

namespace acc::agent::daemon {

namespace asio = boost::asio;

namespace {

constexpr auto kStreamResult = asio::as_tuple(asio::use_awaitable);

class UnixStream final : public ByteStream {
 public:
  UnixStream(const asio::any_io_executor& executor, UniqueFd connected)
      : socket_{executor, asio::local::stream_protocol{}, connected.release()} {}

  asio::awaitable<std::size_t> read_some(std::span<char> into) override {
    const auto [error, n] =
        co_await socket_.async_read_some(asio::buffer(into.data(), into.size()), kStreamResult);
    co_return error ? 0 : n;
  }
  asio::awaitable<bool> write(std::string_view bytes) override {
    const auto [error, n] =
        co_await asio::async_write(socket_, asio::buffer(bytes.data(), bytes.size()), kStreamResult);
    co_return !error && n == bytes.size();
  }
  void try_write(std::string_view bytes) override {
    ::send(socket_.native_handle(), bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
  }
  void watch(std::function<void()> gone) override {
    socket_.async_wait(asio::local::stream_protocol::socket::wait_error,
                       [gone = std::move(gone)](boost::system::error_code error) {
                         if (!error) gone();
                       });
  }
  void cancel() override {
    boost::system::error_code ignored;
    socket_.cancel(ignored);
  }
  void end_writing() override {
    boost::system::error_code ignored;
    socket_.shutdown(asio::local::stream_protocol::socket::shutdown_send, ignored);
  }
  void close() override {
    boost::system::error_code ignored;
    socket_.close(ignored);
  }

 private:
  asio::local::stream_protocol::socket socket_;
};

}  // namespace

std::unique_ptr<ByteStream> unix_stream(asio::any_io_executor executor, UniqueFd connected) {
  return std::make_unique<UnixStream>(executor, std::move(connected));
}

}  // namespace acc::agent::daemon
