#pragma once

#include "common/duration.hpp"
#include "common/unique_fd.hpp"
#include "rendezvous/frame_splitter.hpp"
#include "rendezvous/tls.hpp"

#include <boost/asio/basic_stream_socket.hpp>
#include <boost/asio/basic_waitable_timer.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace acc::rendezvous {

/// A numeric address as a user would write it; IPv4 also for a dual-stack socket.
[[nodiscard]] HostPort host_port(const boost::asio::ip::tcp::endpoint& endpoint);
/// "10.0.0.7:29501", "[fd00::7]:29501"
[[nodiscard]] std::string describe(const HostPort& at);

struct ChannelLimits {
  Millis heartbeat_timeout{5000};  ///< bytes unacknowledged for so long: the peer is lost
  std::size_t queued = std::size_t{8} << 20U;  ///< bytes to send; above: a slow reader
  Millis slow_reader{5000};                    ///< no byte taken for so long
  Millis frame{5000};                          ///< time limit for a frame that has begun
  std::uint32_t frames_per_second = 2000;      ///< above: reading pauses
};

/// Why a channel ended, as far as this side knows.
struct Closed {
  enum class Cause {
    ended,           ///< the other side closed
    reset,           ///< reset by its system
    unreachable,     ///< no acknowledgement for ChannelLimits::dead
    slow_reader,     ///< it read nothing
    slow_frame,      ///< it began a frame and didn't finish it
    malformed,       ///< its bytes are no frame
    not_ours,        ///< it uses another protocol: HTTP, another TLS
    authentication,  ///< the secrets differ
    needs_secret,    ///< it uses TLS and this side doesn't
    has_no_secret,   ///< this side uses TLS and it doesn't
  };
  Cause cause = Cause::ended;
  std::string what;  ///< about the other side, without its address: "sent an HTTP request"
  int errnum = 0;
};

/// Callbacks of a channel to its owner.
struct ChannelHandlers {
  /// Listening side with TLS: the first bytes have arrived, and nothing was spent on them yet.
  /// @param names_key  they name a key of the secret, which proves nothing
  /// @return false: the connection is closed
  std::function<bool(bool names_key)> on_hello{};
  /// The handshake is complete (without TLS: immediately). No frame is read before on_frame is set.
  std::function<void()> on_open{};
  /// @param frame  whole, undecoded; valid until the handler returns
  std::function<void(std::string_view frame)> on_frame{};
  /// Called once, from the loop, never from within a call of the owner. Not after close().
  std::function<void(const Closed&)> on_closed{};
};

/// One ordered stream of frames between two processes, plain or TLS, on one loop. The peer's first
/// frame has at most kMaxFirstFrame bytes, unless allow_large_answer() was called, later ones
/// kMaxFrame. The owner holds the only lasting reference: dropping it closes the connection
/// immediately and calls no handler.
class Channel : public std::enable_shared_from_this<Channel> {
 public:
  using Socket = boost::asio::basic_stream_socket<boost::asio::ip::tcp,
                                                  boost::asio::io_context::executor_type>;

  using Handlers = ChannelHandlers;

  /// @param socket  connected, non-blocking
  /// @param tls     null: plain. Its role says which side begins.
  /// @param accepted  the peer's address, for a socket from a listener that called set_options():
  /// accepted sockets inherit those
  Channel(boost::asio::io_context& io, UniqueFd socket, std::shared_ptr<const TlsContext> tls,
          const ChannelLimits& limits = {}, std::optional<HostPort> accepted = {});
  /// Disables the delay of small frames, and limits the time of unacknowledged ones.
  static void set_options(int fd, const ChannelLimits& limits);
  ~Channel();
  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;

  /// Begins, or continues with other handlers; may be called from within a handler.
  void start(Handlers handlers);

  /// What a close by the peer before its first byte means: a refusal, for this reason
  /// (Cause::authentication). Empty: nothing in particular.
  void explain_early_end(std::string why) { early_end_ = std::move(why); }

  /// Dialling side: the first frame may have kMaxFrame bytes. It may be the end of the job, with
  /// all texts of a failure.
  void allow_large_answer() { splitter_.set_max_frame(kMaxFrame); }

  /// Sends whole frames. What the kernel doesn't accept immediately is queued.
  /// @return false: the channel was closed, or is now because the queue is full
  bool send(std::string_view frames);

  /// Raises ChannelLimits::queued: so much may be sent at once that no peer can read it in time.
  void allow_queued(std::size_t bytes) { limits_.queued += bytes; }
  /// The next frames of the peer, so many, don't count for frames_per_second.
  void allow_frames(std::size_t frames) { free_frames_ = frames; }

  /// No handler is called from now on. Sends what is queued, ends the stream, then waits for the
  /// peer's end (else its system might discard our last bytes), all of it until `limit`. The
  /// channel keeps itself alive for that time.
  void close(Millis limit = Millis{2000}, std::function<void()> done = {});

  [[nodiscard]] bool is_open() const noexcept { return phase_ == Phase::open; }
  [[nodiscard]] std::size_t queued() const noexcept { return out_.size() - out_begin_; }
  [[nodiscard]] const HostPort& peer() const noexcept { return peer_; }
  [[nodiscard]] HostPort local() const;
  [[nodiscard]] bool is_tls() const noexcept { return tls_ != nullptr; }
  /// TLS: the peer's proof, once open. Its frames must be about this job.
  [[nodiscard]] Proof proof() const;

 private:
  static constexpr Instant kNever = Instant::max();
  enum class Phase { made, shaking, open, closing, closed };
  using Timer =
      boost::asio::basic_waitable_timer<std::chrono::steady_clock,
                                        boost::asio::wait_traits<std::chrono::steady_clock>,
                                        boost::asio::io_context::executor_type>;

  void on_readable();
  void on_writable();
  void wait_readable();
  void wait_writable();
  void read_soon();

  bool is_other_language();
  bool is_heard_out();
  void shake_hands();
  void opened();
  void read_turn();
  bool take(std::string_view bytes);
  bool check_first_bytes(std::string_view bytes);
  void count_frames(std::size_t frames);
  void flush();
  std::size_t write_now(std::string_view bytes);
  void after_write(bool has_moved);
  void end_writing();
  void discard_input();
  template <class Handler, class... T>
  void call(const Handler& handler, const T&... arguments);

  void arm_timer();
  void on_timer();
  [[nodiscard]] Instant next_due() const;
  void finish(Closed closed);
  void finish_by_fault();
  void report_closed();

  boost::asio::io_context& io_;
  Socket socket_;
  Timer timer_;
  std::shared_ptr<const TlsContext> tls_;
  std::optional<Stream> stream_;
  ChannelLimits limits_;
  HostPort peer_;
  Phase phase_ = Phase::made;
  Handlers handlers_;
  std::optional<Handlers> next_handlers_;  ///< set while a current handler runs
  FrameSplitter splitter_;
  std::string out_;
  std::size_t out_begin_ = 0;
  Closed closed_;
  std::string early_end_;
  std::function<void()> close_done_;

  Instant frame_due_ = Instant::max();
  Instant write_due_ = Instant::max();
  Instant close_due_ = Instant::max();
  Instant paused_until_ = Instant::max();
  Instant timer_due_ = Instant::max();
  Instant rate_seen_;
  double rate_left_;
  std::size_t free_frames_ = 0;

  bool is_waiting_to_read_ = false;
  bool is_waiting_to_write_ = false;
  bool is_in_handler_ = false;
  bool is_corked_ = false;  ///< while frames are handled: the answers are sent together
  bool has_read_ = false;
  bool has_ended_writing_ = false;
};

}  // namespace acc::rendezvous
