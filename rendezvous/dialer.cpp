#include "rendezvous/dialer.hpp"

#include "rendezvous/socket_users.hpp"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace acc::rendezvous {

namespace asio = boost::asio;
using Kind = DialError::Kind;

namespace {

/// A handshake takes one, or two if a packet is lost; the peer may be busy.
constexpr int kRoundTrips = 4;

Kind kind_of(int errnum) {
  switch (errnum) {
    case ECONNREFUSED:
      return Kind::refused;
    case ETIMEDOUT:
      return Kind::no_answer;
    case EHOSTUNREACH:
    case ENETUNREACH:
    case EADDRNOTAVAIL:
    case EACCES:
    case EPERM:
      return Kind::unreachable;
    case ECONNRESET:
    case EPIPE:
      return Kind::reset;
    default:
      return Kind::system;
  }
}

// Rank of a failure: the user sees the one that is nearest to a working connection.
int weight(Kind kind) {
  switch (kind) {
    case Kind::refused:
      return 4;
    case Kind::reset:
      return 3;
    case Kind::no_answer:
      return 2;
    case Kind::unreachable:
      return 1;
    default:
      return 0;
  }
}

}  // namespace

std::shared_ptr<Dial> dial(asio::io_context& io, DialOptions options, Dial::OnDone done) {
  auto attempt = std::make_shared<Dial>(io, std::move(options));
  attempt->start(std::move(done));
  return attempt;
}

Dial::Dial(asio::io_context& io, DialOptions options)
    : io_{io}, options_{std::move(options)}, socket_{io}, timer_{io} {}

std::string Dial::target() const {
  // A numeric address is not repeated.
  const std::string to = describe(options_.to);
  return tried_.empty() || tried_ == options_.to.host ? to : to + " (" + tried_ + ")";
}

std::string Dial::our_secret() const {
  return options_.tls->secret().path + ", key id " + options_.tls->secret().keys.front().id;
}

void Dial::start(OnDone done) {
  done_ = std::move(done);
  due_ = clock_now() + options_.limit;
  arm(due_);
  lookup_ = std::make_shared<Lookup>(io_);
  lookup_->start(options_.to,
                 [weak = weak_from_this()](Lookup::Endpoints found, const std::string& failed) {
                   if (const auto self = weak.lock()) self->resolved(std::move(found), failed);
                 });
}

void Dial::arm(Instant due) {
  timer_.expires_at(due);
  timer_.async_wait([weak = weak_from_this()](boost::system::error_code cancelled) {
    const auto self = weak.lock();
    if (self && !cancelled) self->on_timer();
  });
}

void Dial::resolved(Lookup::Endpoints found, const std::string& failed) {
  if (step_ != Step::looking_up) return;
  if (found.empty())
    return fail(Kind::name_unknown, "the host name '" + options_.to.host + "' is not known here (" +
                                        failed +
                                        "): is it spelled right, does this node's DNS know it?");
  std::reverse(found.begin(), found.end());
  left_ = std::move(found);
  step_ = Step::connecting;
  try_next();
}

// Each address gets a share of the remaining time, so that a silent one doesn't use all of it.
void Dial::try_next() {
  if (left_.empty()) return fail_to_connect();
  now_ = left_.back();
  tried_ += (tried_.empty() ? "" : ", ") + host_port(now_).host;
  const auto share = (due_ - clock_now()) / static_cast<int>(left_.size());
  left_.pop_back();
  arm(clock_now() + share);

  // Not through asio: its sockets would stay open in the workers that this process starts.
  UniqueFd fd{::socket(now_.protocol().family(), SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0)};
  if (!fd) {
    note_failure(errno);
    return try_next();
  }
  connecting_since_ = clock_now();
  socket_ = Channel::Socket{io_};
  socket_.assign(now_.protocol(), fd.release());
  socket_.async_connect(
      now_, [weak = weak_from_this(), left = left_.size()](boost::system::error_code failed) {
        const auto self = weak.lock();
        // This may be late: the address had its time, and the next one is being tried.
        if (self && failed != asio::error::operation_aborted && self->step_ == Step::connecting &&
            self->left_.size() == left)
          self->connected(failed);
      });
}

void Dial::connected(boost::system::error_code failed) {
  boost::system::error_code ignored;
  // On one host a connection to a free port may connect to itself.
  if (!failed && socket_.local_endpoint(ignored) == now_)
    failed = make_error_code(boost::system::errc::connection_refused);
  if (!failed && !options_.tls && !options_.is_insecure && now_.address().is_loopback()) {
    SocketUsers users;
    const auto other = users.at_other_end(socket_.native_handle(), SocketUsers::Side::listens);
    const bool is_gone = other.known == SocketUsers::Known::gone;  // or a shortage: it may pass
    if (is_gone) {
      failed = make_error_code(boost::system::errc::connection_reset);
    } else if (const auto objection = SocketUsers::objection(other)) {
      return fail(Kind::authentication, "who listens at " + target() + ": " + *objection);
    } else {
      expected_refusal_ = users.expected_refusal(socket_.native_handle()).value_or("");
    }
  }
  if (!failed) return shake_hands();
  note_failure(failed.value());
  socket_.close(ignored);
  try_next();
}

void Dial::note_failure(int errnum) {
  const Kind kind = kind_of(errnum);
  if (has_failed_ && weight(kind) <= weight(worst_.kind)) return;
  worst_ = {kind, {}, errnum};
  has_failed_ = true;
}

void Dial::shake_hands() {
  step_ = Step::shaking_hands;
  const auto now = clock_now();
  const auto round_trip = std::chrono::duration_cast<Millis>(now - connecting_since_);
  const auto left = std::chrono::duration_cast<Millis>(due_ - now);
  patience_ = std::max(left, kRoundTrips * round_trip);
  arm(now + patience_);
  channel_ =
      std::make_shared<Channel>(io_, UniqueFd{socket_.release()}, options_.tls, options_.channel);
  channel_->explain_early_end(expected_refusal_);
  channel_->allow_large_answer();
  channel_->start({.on_open =
                       [weak = weak_from_this()] {
                         if (const auto self = weak.lock()) self->succeed();
                       },
                   .on_frame = {},
                   .on_closed =
                       [weak = weak_from_this()](const Closed& closed) {
                         if (const auto self = weak.lock()) self->handshake_failed(closed);
                       }});
}

void Dial::handshake_failed(const Closed& closed) {
  using Cause = Closed::Cause;
  switch (closed.cause) {
    case Cause::authentication:
      return fail(Kind::authentication, "authentication failed at " + target() +
                                            ": has the other side another secret? This side used " +
                                            our_secret());
    case Cause::has_no_secret:
      return fail(Kind::has_no_secret,
                  target() +
                      " speaks no TLS: it has no secret, or was started with --insecure. "
                      "This side used " +
                      our_secret() + "; give all nodes the same");
    case Cause::not_ours:
    case Cause::malformed:
      return fail(Kind::not_ours, "another program listens at " + target() + ": it " + closed.what +
                                      ". Is the port right?");
    case Cause::unreachable:
      return fail(Kind::no_answer, target() + " " + closed.what, closed.errnum);
    default:
      return fail(Kind::reset,
                  target() + " " + closed.what +
                      ": did the job end there, or does it turn away too many attempts?",
                  closed.errnum);
  }
}

void Dial::on_timer() {
  const std::string limit = acc::describe(options_.limit);
  if (step_ == Step::looking_up)
    return fail(Kind::name_unknown, "the host name '" + options_.to.host +
                                        "' was not looked up within " + limit +
                                        ": does this node's DNS server answer?");
  if (step_ == Step::shaking_hands)
    return fail(Kind::no_answer, target() + " took the connection, but did not answer within " +
                                     acc::describe(patience_) +
                                     ": is the process there stopped, or another program?");
  if (step_ != Step::connecting) return;
  boost::system::error_code ignored;
  socket_.close(ignored);
  note_failure(ETIMEDOUT);
  try_next();
}

void Dial::fail_to_connect() {
  const std::string at = target();
  const std::string why = std::strerror(worst_.errnum);
  switch (worst_.kind) {
    case Kind::refused:
      return fail(Kind::refused,
                  "nobody listens at " + at + ": is the job started there, is the port right?",
                  worst_.errnum);
    case Kind::no_answer:
      return fail(Kind::no_answer,
                  "no answer from " + at + " within " + acc::describe(options_.limit) +
                      ": is the address right, is the host up, does a firewall drop it?",
                  worst_.errnum);
    case Kind::unreachable:
      return fail(Kind::unreachable,
                  "no way to " + at + ": " + why + ". Is the address right, is a network down?",
                  worst_.errnum);
    default:
      return fail(worst_.kind, "connect to " + at + ": " + why, worst_.errnum);
  }
}

void Dial::succeed() {
  if (step_ == Step::over) return;
  step_ = Step::over;
  timer_.cancel();
  const auto done = std::exchange(done_, {});
  done(std::exchange(channel_, {}));
}

void Dial::fail(Kind kind, std::string what, int errnum) {
  if (step_ == Step::over) return;
  step_ = Step::over;
  timer_.cancel();
  lookup_.reset();
  channel_.reset();
  boost::system::error_code ignored;
  socket_.close(ignored);
  const auto done = std::exchange(done_, {});
  done(DialError{kind, std::move(what), errnum});
}

}  // namespace acc::rendezvous
