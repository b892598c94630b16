#pragma once

#include "agent/daemon/http_stream.hpp"
#include "common/alive.hpp"
#include "common/duration.hpp"
#include "rendezvous/tls.hpp"

#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

namespace acc::agent::daemon {

/// A connection to another daemon: TLS over TCP. A read or write that could go on for long lets
/// others have their turn.
class PeerStream final : public ByteStream {
 public:
  /// @param socket  non-blocking; connected, unless connect() follows
  PeerStream(const boost::asio::any_io_executor& executor, UniqueFd socket, bool is_v6);
  ~PeerStream() override;

  boost::asio::awaitable<boost::system::error_code> connect(boost::asio::ip::tcp::endpoint to);
  /// What this connection takes a share of lasts as long as it.
  void hold(std::shared_ptr<void> share) { share_ = std::move(share); }
  [[nodiscard]] bool holds_share() const { return share_ != nullptr; }
  /// False: cancelled, or closed.
  boost::asio::awaitable<bool> readable();
  /// Before any read or write: Io::done, or why not (tls()).
  boost::asio::awaitable<rendezvous::Io> shake_hands(
      std::shared_ptr<const rendezvous::TlsContext> with);
  [[nodiscard]] bool has_begun() const { return stream_ != nullptr; }
  /// After shake_hands().
  [[nodiscard]] const rendezvous::Stream& tls() const { return *stream_; }
  [[nodiscard]] int fd() { return socket_.native_handle(); }
  [[nodiscard]] bool is_to_itself() const;
  /// Where it is connected to; nothing once it is not.
  [[nodiscard]] boost::asio::ip::tcp::endpoint remote() const;

  boost::asio::awaitable<std::size_t> read_some(std::span<char> into) override;
  boost::asio::awaitable<bool> write(std::string_view bytes) override;
  void try_write(std::string_view bytes) override;
  /// Reads what comes meanwhile, up to some KiB: only so the end of a TLS stream is seen.
  void watch(std::function<void()> gone) override;
  void cancel() override;
  void end_writing() override;
  void close() override;
  /// What wasn't sent when the connection is closed, or when this process ends, isn't sent any
  /// more.
  void drop_unsent_at_close(bool drops);

 private:
  using Socket = boost::asio::ip::tcp::socket;

  boost::asio::awaitable<bool> ready(rendezvous::Io wanted);
  boost::asio::awaitable<void> give_turn(std::size_t bytes);
  void look(std::uint64_t watch, const std::function<void()>& gone);

  Socket socket_;
  std::unique_ptr<rendezvous::Stream> stream_;
  std::string held_;         ///< read by a watch
  std::uint64_t watch_ = 0;  ///< number of the current one; an older one does nothing
  std::size_t since_turn_ = 0;
  std::shared_ptr<void> share_;
  Alive alive_;
};

/// Cancels what is pending on a stream at that time. The stream outlives it.
class StreamDeadline {
 public:
  StreamDeadline(const boost::asio::any_io_executor& executor, ByteStream& stream, Instant due);
  [[nodiscard]] bool is_late() const { return is_late_; }

 private:
  boost::asio::steady_timer timer_;
  bool is_late_ = false;
  Alive alive_;
};

/// No delay of small pieces; a peer that is gone is noticed within half a minute, also by one that
/// only reads.
void set_peer_options(int fd);

}  // namespace acc::agent::daemon
