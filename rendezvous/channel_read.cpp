#include "rendezvous/channel.hpp"

#include <boost/asio/execution_context.hpp>

#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <span>

// Receiving half of a channel: the handshake, and frames out of bytes.
namespace acc::rendezvous {

namespace asio = boost::asio;

namespace {

constexpr std::size_t kRead = std::size_t{64} << 10U;  // one read
constexpr std::size_t kHello = std::size_t{2} << 10U;  // bytes of a first message that are examined
constexpr std::size_t kTurn = std::size_t{256} << 10U;  // then other channels get their turn

/// One buffer for all channels of a loop: an idle channel needs none.
class ReadBuffer : public asio::execution_context::service {
 public:
  using key_type = ReadBuffer;
  static inline asio::execution_context::id id;
  explicit ReadBuffer(asio::execution_context& owner)
      : asio::execution_context::service{owner}, bytes_{new char[kRead]} {}
  std::span<char> bytes() { return {bytes_.get(), kRead}; }

 private:
  void shutdown() override {}
  std::unique_ptr<char[]> bytes_;
};

}  // namespace

// ---- the handshake

// Before anything is spent on TLS: a peer that speaks another protocol gets an answer and is
// closed.
bool Channel::is_other_language() {
  std::array<char, 4> first{};
  const ssize_t n = ::recv(socket_.native_handle(), first.data(), first.size(), MSG_PEEK);
  if (n <= 0 || first[0] == '\x16') return false;
  const auto speech = recognise({first.data(), static_cast<std::size_t>(n)});
  std::size_t taken = 0;
  Stream{socket_.native_handle()}.write(kAlertNeedsTls, taken);
  // Unread input would turn the orderly close into a reset.
  const auto rest = asio::use_service<ReadBuffer>(io_).bytes();
  ::recv(socket_.native_handle(), rest.data(), rest.size(), 0);
  if (speech == Speech::http)
    finish({Closed::Cause::not_ours, "sent an HTTP request"});
  else
    finish({Closed::Cause::has_no_secret,
            "speaks no TLS: it has no secret, or it is another program"});
  return true;
}

// Asks the owner whether the first bytes justify a handshake. A hello normally arrives in one
// piece; a fragmented one names no key.
bool Channel::is_heard_out() {
  if (!handlers_.on_hello) return true;
  const auto buffer = asio::use_service<ReadBuffer>(io_).bytes().first(kHello);
  const ssize_t n =
      ::recv(socket_.native_handle(), buffer.data(), buffer.size(), MSG_PEEK | MSG_DONTWAIT);
  const std::string_view bytes{buffer.data(), static_cast<std::size_t>(std::max<ssize_t>(n, 0))};
  const auto ask = handlers_.on_hello;
  if (ask(names_key(tls_->secret(), bytes))) return true;
  finish({Closed::Cause::not_ours, "names no key of ours, and too many before it failed"});
  return false;
}

void Channel::shake_hands() {
  if (!stream_) {
    if (tls_ && tls_->role() == TlsContext::Role::listens) {
      char first = 0;
      if (::recv(socket_.native_handle(), &first, 1, MSG_PEEK) < 0 && errno == EAGAIN)
        return wait_readable();
      if (!is_heard_out() || is_other_language()) return;
    }
    tls_ ? stream_.emplace(socket_.native_handle(), tls_)
         : stream_.emplace(socket_.native_handle());
  }
  switch (stream_->shake_hands()) {
    case Io::done:
      return opened();
    case Io::want_read:
      return wait_readable();
    case Io::want_write:
      return wait_writable();
    case Io::end:
    case Io::failed:
      return finish_by_fault();
  }
}

void Channel::opened() {
  phase_ = Phase::open;
  if (handlers_.on_open) call(handlers_.on_open);
  if (phase_ != Phase::open) return;
  // TLS may have read beyond the handshake, which no socket event reports. Without TLS there is
  // normally nothing yet.
  tls_ ? read_turn() : wait_readable();
}

// ---- reading

template <class Handler, class... T>
void Channel::call(const Handler& handler, const T&... arguments) {
  is_in_handler_ = true;
  handler(arguments...);
  is_in_handler_ = false;
  if (!next_handlers_) return;
  handlers_ = std::move(*next_handlers_);
  next_handlers_.reset();
}

void Channel::read_turn() {
  if (!handlers_.on_frame || paused_until_ != kNever) return;
  const auto buffer = asio::use_service<ReadBuffer>(io_).bytes();
  for (std::size_t total = 0; total < kTurn;) {
    std::size_t got = 0;
    switch (stream_->read(buffer, got)) {
      case Io::done:
        break;
      case Io::want_read:
        return wait_readable();
      case Io::want_write:
        return wait_writable();
      case Io::end:
        return finish({Closed::Cause::ended, splitter_.pending() != 0
                                                 ? "closed the connection in the middle of a frame"
                                                 : "closed the connection"});
      case Io::failed:
        return finish_by_fault();
    }
    if (!take({buffer.data(), got})) return;
    if (!tls_ && got < buffer.size()) return wait_readable();  // nothing more is there
    total += got;
  }
  read_soon();
}

bool Channel::check_first_bytes(std::string_view bytes) {
  switch (recognise(bytes)) {
    case Speech::ours_or_unknown:
      return true;
    case Speech::http:
      finish({Closed::Cause::not_ours, "speaks HTTP"});
      return false;
    case Speech::tls_hello: {
      std::size_t taken = 0;
      stream_->write(kAlertNoTls, taken);
      finish({Closed::Cause::needs_secret, "speaks TLS: it has a secret and this side has none"});
      return false;
    }
    case Speech::tls_alert:
      finish({Closed::Cause::needs_secret, "asks for a secret and this side has none"});
      return false;
  }
  return true;
}

/// @return false: stop reading
bool Channel::take(std::string_view bytes) {
  if (!has_read_ && !tls_ && !check_first_bytes(bytes)) return false;
  has_read_ = true;
  splitter_.feed(bytes);
  std::size_t frames = 0;
  is_corked_ = true;
  for (;;) {
    const auto frame = splitter_.next();
    if (!frame) {
      is_corked_ = false;
      finish({Closed::Cause::malformed, frame.error().what});
      return false;
    }
    if (!*frame) break;
    ++frames;
    call(handlers_.on_frame, **frame);
    splitter_.set_max_frame(kMaxFrame);
    if (phase_ == Phase::open && !handlers_.on_frame)
      finish({Closed::Cause::ended, "was not wanted any more"});
    if (phase_ != Phase::open) {
      is_corked_ = false;
      if (phase_ == Phase::closing) flush();
      return false;
    }
  }
  is_corked_ = false;
  if (splitter_.pending() == 0)
    frame_due_ = kNever;
  else if (frames != 0 || frame_due_ == kNever)
    frame_due_ = clock_now() + limits_.frame;
  count_frames(frames);
  flush();
  arm_timer();
  return phase_ == Phase::open && paused_until_ == kNever;
}

// A bucket of one second's frames that one read may overdraw: what was read is handled.
void Channel::count_frames(std::size_t frames) {
  const std::size_t free = std::min(frames, free_frames_);
  free_frames_ -= free;
  frames -= free;
  const double most = limits_.frames_per_second;
  const auto now = clock_now();
  rate_left_ += std::chrono::duration<double>(now - rate_seen_).count() * most;
  rate_left_ = std::min(rate_left_, most) - static_cast<double>(frames);
  rate_seen_ = now;
  if (rate_left_ >= 0) return;
  const auto pause = std::chrono::duration<double>{-rate_left_ / most};
  paused_until_ = now + std::chrono::duration_cast<Instant::duration>(pause) + Millis{1};
  // The rest of the frame may lie unread in our own system.
  frame_due_ = kNever;
}

// No longer needed, but left unread it would turn the orderly close into a reset.
void Channel::discard_input() {
  const auto buffer = asio::use_service<ReadBuffer>(io_).bytes();
  for (std::size_t total = 0; total < kTurn;) {
    std::size_t got = 0;
    const Io io = stream_->read(buffer, got);
    if (io == Io::want_read || io == Io::want_write) return wait_readable();
    if (io != Io::done) {
      // The peer may have stopped only sending, and may still wait for our queue.
      if (io == Io::end && !has_ended_writing_) return;
      return finish({});
    }
    total += got;
  }
  read_soon();
}

}  // namespace acc::rendezvous
