#include "agent/daemon/peer_stream.hpp"

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/use_awaitable.hpp>

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <utility>

namespace acc::agent::daemon {

namespace asio = boost::asio;
using rendezvous::Io;

namespace {

constexpr auto kPeerResult = asio::as_tuple(asio::use_awaitable);
constexpr std::size_t kTurnBytes = 256 * 1024;
constexpr std::size_t kMostHeld = 8 * 1024;

}  // namespace

PeerStream::PeerStream(const asio::any_io_executor& executor, UniqueFd socket, bool is_v6)
    : socket_{executor} {
  set_peer_options(socket.get());
  socket_.assign(is_v6 ? asio::ip::tcp::v6() : asio::ip::tcp::v4(), socket.release());
}

PeerStream::~PeerStream() { stream_.reset(); }

asio::awaitable<boost::system::error_code> PeerStream::connect(asio::ip::tcp::endpoint to) {
  const auto [error] = co_await socket_.async_connect(to, kPeerResult);
  co_return error;
}

bool PeerStream::is_to_itself() const {
  boost::system::error_code error;
  const auto local = socket_.local_endpoint(error);
  const auto remote = socket_.remote_endpoint(error);
  return !error && local == remote;
}

asio::ip::tcp::endpoint PeerStream::remote() const {
  boost::system::error_code error;
  return socket_.remote_endpoint(error);
}

asio::awaitable<bool> PeerStream::readable() { co_return co_await ready(Io::want_read); }

asio::awaitable<bool> PeerStream::ready(Io wanted) {
  const auto what = wanted == Io::want_read ? Socket::wait_read : Socket::wait_write;
  const auto [error] = co_await socket_.async_wait(what, kPeerResult);
  co_return !error && socket_.is_open();
}

asio::awaitable<void> PeerStream::give_turn(std::size_t bytes) {
  since_turn_ += bytes;
  if (since_turn_ < kTurnBytes) co_return;
  since_turn_ = 0;
  co_await asio::post(socket_.get_executor(), asio::use_awaitable);
}

asio::awaitable<Io> PeerStream::shake_hands(std::shared_ptr<const rendezvous::TlsContext> with) {
  stream_ = std::make_unique<rendezvous::Stream>(socket_.native_handle(), std::move(with));
  for (;;) {
    const Io io = stream_->shake_hands();
    if (io != Io::want_read && io != Io::want_write) co_return io;
    const bool is_ready = co_await ready(io);
    if (!is_ready) co_return Io::failed;
  }
}

asio::awaitable<std::size_t> PeerStream::read_some(std::span<char> into) {
  if (!held_.empty()) {
    const auto n = std::min(held_.size(), into.size());
    std::copy_n(held_.begin(), n, into.begin());
    held_.erase(0, n);
    co_return n;
  }
  while (stream_ && socket_.is_open()) {
    std::size_t got = 0;
    const Io io = stream_->read(into, got);
    if (io == Io::done && got > 0) {
      co_await give_turn(got);
      co_return got;
    }
    if (io == Io::end || io == Io::failed) co_return 0;
    const bool is_ready = io == Io::done || co_await ready(io);
    if (!is_ready) co_return 0;
  }
  co_return 0;
}

asio::awaitable<bool> PeerStream::write(std::string_view bytes) {
  while (stream_ && socket_.is_open() && !bytes.empty()) {
    std::size_t taken = 0;
    const Io io = stream_->write(bytes, taken);
    if (io == Io::done) {
      bytes.remove_prefix(taken);
      co_await give_turn(taken);
      continue;
    }
    if (io == Io::end || io == Io::failed) co_return false;
    const bool is_ready = co_await ready(io);
    if (!is_ready) co_return false;
  }
  const bool is_all = bytes.empty();
  co_return is_all;
}

void PeerStream::try_write(std::string_view bytes) {
  if (!stream_ || !socket_.is_open()) return;
  std::size_t taken = 0;
  stream_->write(bytes, taken);
}

void PeerStream::watch(std::function<void()> gone) {
  const auto number = ++watch_;
  // What TLS has read already, no event of the socket reports.
  asio::post(socket_.get_executor(),
             alive_.bind([this, number, gone = std::move(gone)] { look(number, gone); }));
}

void PeerStream::look(std::uint64_t number, const std::function<void()>& gone) {
  if (number != watch_ || !stream_ || !socket_.is_open()) return;
  std::array<char, 4096> piece;
  for (;;) {
    std::size_t got = 0;
    const Io io = stream_->read(piece, got);
    if (io == Io::end || io == Io::failed) return gone();
    if (io != Io::done) break;
    held_.append(piece.data(), got);
    if (held_.size() > kMostHeld) return;  // one that sends so much is there
  }
  socket_.async_wait(Socket::wait_read,
                     alive_.bind([this, number, gone](boost::system::error_code error) {
                       if (!error) look(number, gone);
                     }));
}

void PeerStream::cancel() {
  ++watch_;
  boost::system::error_code ignored;
  socket_.cancel(ignored);
}

void PeerStream::end_writing() {
  if (stream_ && socket_.is_open()) stream_->end_writing();
}

void PeerStream::close() {
  if (!socket_.is_open()) return;
  end_writing();
  ++watch_;
  boost::system::error_code ignored;
  socket_.close(ignored);
}

// Else the kernel sends the rest, which it may do once a network is back, minutes later.
void PeerStream::drop_unsent_at_close(bool drops) {
  if (!socket_.is_open()) return;
  const linger at_once{drops ? 1 : 0, 0};
  ::setsockopt(socket_.native_handle(), SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
}

StreamDeadline::StreamDeadline(const asio::any_io_executor& executor, ByteStream& stream,
                               Instant due)
    : timer_{executor} {
  if (due == Instant::max()) return;
  timer_.expires_at(due);
  timer_.async_wait(alive_.bind([this, &stream](boost::system::error_code error) {
    if (error) return;
    is_late_ = true;
    stream.cancel();
  }));
}

void set_peer_options(int fd) {
  const auto set = [fd](int level, int name, int value) {
    ::setsockopt(fd, level, name, &value, sizeof value);
  };
  set(IPPROTO_TCP, TCP_NODELAY, 1);
  set(SOL_SOCKET, SO_KEEPALIVE, 1);
  set(IPPROTO_TCP, TCP_KEEPIDLE, 15);
  set(IPPROTO_TCP, TCP_KEEPINTVL, 5);
  set(IPPROTO_TCP, TCP_KEEPCNT, 3);
}

}  // namespace acc::agent::daemon
