#include "rendezvous/channel.hpp"

#include "common/endpoint.hpp"

#include <boost/asio/post.hpp>

#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace acc::rendezvous {

namespace asio = boost::asio;

namespace {

constexpr std::size_t kCorked = std::size_t{64} << 10U;

asio::ip::tcp::endpoint peer_of(int fd) {
  asio::ip::tcp::endpoint endpoint;
  auto length = static_cast<socklen_t>(endpoint.capacity());
  if (::getpeername(fd, endpoint.data(), &length) != 0) return {};
  // A socketpair, as used in tests, has no address.
  if (endpoint.data()->sa_family != AF_INET && endpoint.data()->sa_family != AF_INET6) return {};
  endpoint.resize(length);
  return endpoint;
}

asio::ip::tcp family_of(const HostPort& peer) {
  return peer.host.find(':') == std::string::npos ? asio::ip::tcp::v4() : asio::ip::tcp::v6();
}

Closed from_fault(const Stream& stream, bool is_open) {
  using Cause = Closed::Cause;
  switch (stream.fault()) {
    case StreamFault::authentication:
      return {Cause::authentication, "authentication failed"};
    case StreamFault::other_is_plain:
      return {Cause::has_no_secret, "speaks no TLS: it has no secret"};
    case StreamFault::not_tls:
      return {Cause::not_ours, "answers something that is no TLS"};
    case StreamFault::not_ours:
      return {Cause::not_ours, "speaks TLS, but not with a secret of ours"};
    case StreamFault::busy:
      return {Cause::ended, "takes no more connections at once"};
    case StreamFault::broken:
      return {Cause::malformed,
              "sent bytes that were changed on the way (" + stream.describe_fault() + ")"};
    case StreamFault::none:
    case StreamFault::reset:
      break;
  }
  if (stream.errnum() == ETIMEDOUT)
    return {Cause::unreachable, "acknowledged nothing any more", ETIMEDOUT};
  if (stream.errnum() == 0) return {Cause::ended, "closed the connection unexpectedly"};
  return {
      Cause::reset,
      std::string{is_open ? "broke the connection" : "broke the connection during the handshake"} +
          " (" + stream.describe_fault() + ")",
      stream.errnum()};
}

}  // namespace

HostPort host_port(const asio::ip::tcp::endpoint& endpoint) {
  const auto address = endpoint.address();
  if (address.is_v6() && address.to_v6().is_v4_mapped())
    return {asio::ip::make_address_v4(asio::ip::v4_mapped, address.to_v6()).to_string(),
            endpoint.port()};
  return {address.to_string(), endpoint.port()};
}

std::string describe(const HostPort& at) { return join_host_port(at.host, at.port); }

Channel::Channel(asio::io_context& io, UniqueFd socket, std::shared_ptr<const TlsContext> tls,
                 const ChannelLimits& limits, std::optional<HostPort> accepted)
    : io_{io},
      socket_{io},
      timer_{io},
      tls_{std::move(tls)},
      limits_{limits},
      peer_{accepted ? std::move(*accepted) : host_port(peer_of(socket.get()))},
      rate_seen_{clock_now()},
      rate_left_{static_cast<double>(limits.frames_per_second)} {
  if (!accepted) set_options(socket.get(), limits);
  socket_.assign(family_of(peer_), socket.release());
}

Channel::~Channel() = default;

void Channel::set_options(int fd, const ChannelLimits& limits) {
  const int on = 1;
  const auto dead =
      static_cast<unsigned>(std::max<Millis::rep>(1, limits.heartbeat_timeout.count()));
  // Where these options don't exist (a socketpair), everything else still works.
  ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  ::setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &dead, sizeof dead);
}

HostPort Channel::local() const {
  boost::system::error_code failed;
  const auto endpoint = socket_.local_endpoint(failed);
  return failed ? HostPort{} : host_port(endpoint);
}

Proof Channel::proof() const { return stream_ ? stream_->proof() : Proof{}; }

void Channel::start(Handlers handlers) {
  if (phase_ == Phase::closing) return;
  if (is_in_handler_)
    next_handlers_ = std::move(handlers);
  else
    handlers_ = std::move(handlers);
  if (phase_ == Phase::closed) return report_closed();
  if (phase_ == Phase::made) {
    phase_ = Phase::shaking;
    asio::post(io_, [weak = weak_from_this()] {
      const auto self = weak.lock();
      if (self && self->phase_ == Phase::shaking) self->shake_hands();
    });
  } else if (phase_ == Phase::open && !is_in_handler_) {
    read_soon();
  }
}

// ---- waiting

void Channel::wait_readable() {
  if (is_waiting_to_read_) return;
  is_waiting_to_read_ = true;
  socket_.async_wait(Socket::wait_read,
                     [weak = weak_from_this()](boost::system::error_code failed) {
                       const auto self = weak.lock();
                       if (!self || failed || self->phase_ == Phase::closed) return;
                       self->is_waiting_to_read_ = false;
                       self->on_readable();
                     });
}

void Channel::wait_writable() {
  if (is_waiting_to_write_) return;
  is_waiting_to_write_ = true;
  socket_.async_wait(Socket::wait_write,
                     [weak = weak_from_this()](boost::system::error_code failed) {
                       const auto self = weak.lock();
                       if (!self || failed || self->phase_ == Phase::closed) return;
                       self->is_waiting_to_write_ = false;
                       self->on_writable();
                     });
}

void Channel::read_soon() {
  if (is_waiting_to_read_) return;
  asio::post(io_, [weak = weak_from_this()] {
    const auto self = weak.lock();
    if (self && !self->is_waiting_to_read_) self->on_readable();
  });
}

void Channel::on_readable() {
  if (phase_ == Phase::shaking) return shake_hands();
  if (phase_ == Phase::open) return read_turn();
  if (phase_ == Phase::closing) return discard_input();
}

void Channel::on_writable() {
  if (phase_ == Phase::shaking) return shake_hands();
  flush();
  // TLS may have had to write before it could continue reading.
  if (phase_ != Phase::closed && !is_waiting_to_read_) on_readable();
}

// ---- writing

bool Channel::send(std::string_view frames) {
  if (phase_ != Phase::open) return false;
  if (queued() + frames.size() > limits_.queued) {
    finish({Closed::Cause::slow_reader, std::to_string(queued()) + " bytes wait for it: too slow"});
    return false;
  }
  if (queued() == 0 && !is_corked_) {
    frames.remove_prefix(write_now(frames));
    if (phase_ == Phase::closed) return false;
  }
  out_.append(frames);
  if (is_corked_ && queued() >= kCorked) {
    flush();
  } else if (!is_corked_) {
    after_write(false);
  }
  return phase_ == Phase::open;
}

std::size_t Channel::write_now(std::string_view bytes) {
  std::size_t total = 0;
  while (total < bytes.size()) {
    std::size_t taken = 0;
    const Io io = stream_->write(bytes.substr(total), taken);
    if (io == Io::failed || io == Io::end) {
      finish_by_fault();
      return total;
    }
    if (io != Io::done) break;
    total += taken;
  }
  return total;
}

void Channel::flush() {
  if (phase_ == Phase::closed) return;
  const std::size_t moved = write_now(std::string_view{out_}.substr(out_begin_));
  if (phase_ == Phase::closed) return;
  out_begin_ += moved;
  if (out_begin_ >= out_.size() / 2) {
    out_.erase(0, out_begin_);
    out_begin_ = 0;
  }
  after_write(moved != 0);
}

void Channel::after_write(bool has_moved) {
  if (queued() == 0) {
    write_due_ = kNever;
    std::string{}.swap(out_);
    if (phase_ == Phase::closing) end_writing();
    return;
  }
  if (has_moved || write_due_ == kNever) write_due_ = clock_now() + limits_.slow_reader;
  wait_writable();
  arm_timer();
}

// ---- the end

void Channel::close(Millis limit, std::function<void()> done) {
  close_done_ = std::move(done);
  if (is_in_handler_)
    next_handlers_.emplace();
  else
    handlers_ = {};
  if (phase_ == Phase::closed) {
    if (close_done_) asio::post(io_, std::exchange(close_done_, {}));
    return;
  }
  if (phase_ != Phase::open) return finish({});
  phase_ = Phase::closing;
  close_due_ = clock_now() + limit;
  timer_due_ = kNever;  // the timer is set anew: from here on it keeps the channel alive
  paused_until_ = frame_due_ = kNever;
  arm_timer();
  if (!is_corked_) flush();
}

void Channel::end_writing() {
  if (has_ended_writing_) return;
  has_ended_writing_ = true;
  stream_->end_writing();
  if (!is_waiting_to_read_) read_soon();
}

Instant Channel::next_due() const {
  return std::min({frame_due_, write_due_, close_due_, paused_until_});
}

// One timer for all deadlines: it runs only while one is pending, and is never set to a later time.
void Channel::arm_timer() {
  const Instant due = next_due();
  if (phase_ == Phase::closed || due >= timer_due_) return;
  timer_due_ = due;
  timer_.expires_at(due);
  // The owner may drop a closing channel; it ends with the timer, or with the loop.
  auto keep = phase_ == Phase::closing ? shared_from_this() : nullptr;
  timer_.async_wait(
      [weak = weak_from_this(), keep = std::move(keep)](boost::system::error_code cancelled) {
        const auto self = weak.lock();
        if (!self || cancelled || self->phase_ == Phase::closed) return;
        self->timer_due_ = kNever;
        self->on_timer();
      });
}

void Channel::on_timer() {
  const auto now = clock_now();
  if (now >= close_due_) return finish({});
  if (now >= frame_due_)
    return finish({Closed::Cause::slow_frame,
                   "began a frame and did not end it in " + acc::describe(limits_.frame)});
  if (now >= write_due_)
    return finish({Closed::Cause::slow_reader,
                   "took nothing for " + acc::describe(limits_.slow_reader) + ", while " +
                       std::to_string(queued()) + " bytes waited for it"});
  if (now >= paused_until_) {
    paused_until_ = kNever;
    if (splitter_.pending() != 0) frame_due_ = now + limits_.frame;
    read_turn();
  }
  arm_timer();
}

void Channel::finish_by_fault() {
  finish(stream_ ? from_fault(*stream_, phase_ == Phase::open) : Closed{});
}

void Channel::finish(Closed closed) {
  if (phase_ == Phase::closed) return;
  const auto self = shared_from_this();
  phase_ = Phase::closed;
  closed_ = std::move(closed);
  const bool is_ended =
      closed_.cause == Closed::Cause::ended || closed_.cause == Closed::Cause::reset;
  if (is_ended && !has_read_ && !early_end_.empty())
    closed_ = {Closed::Cause::authentication, early_end_};
  frame_due_ = write_due_ = close_due_ = paused_until_ = kNever;
  boost::system::error_code ignored;
  socket_.close(ignored);
  timer_.cancel();
  std::string{}.swap(out_);
  out_begin_ = 0;
  if (close_done_) asio::post(io_, std::exchange(close_done_, {}));
  report_closed();
}

void Channel::report_closed() {
  asio::post(io_, [weak = weak_from_this()] {
    const auto self = weak.lock();
    if (!self || !self->handlers_.on_closed) return;
    const auto handlers = std::exchange(self->handlers_, {});
    handlers.on_closed(self->closed_);
  });
}

}  // namespace acc::rendezvous
