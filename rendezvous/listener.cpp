#include "rendezvous/listener.hpp"

#include "rendezvous/port_holder.hpp"

#include <fcntl.h>
#include <sys/socket.h>

#include <cerrno>
#include <climits>
#include <optional>

namespace acc::rendezvous {

namespace asio = boost::asio;

namespace {

constexpr int kBatch = 64;            // accepted per turn, so that heartbeats continue meanwhile
constexpr Millis kNoDescriptors{50};  // until accepting is tried again

Error bind_error(int errnum, const HostPort& at) {
  const std::string where = "listen at " + describe(at);
  if (errnum == EADDRINUSE) {
    const std::string holder = describe_port_holder(at.port);
    return {Errc::unavailable,
            where + ": the port is taken" + (holder.empty() ? "" : " by " + holder) +
                "; end that or choose another port",
            errnum};
  }
  if (errnum == EADDRNOTAVAIL)
    return {Errc::bad_config,
            where +
                ": this host has no such address; give one of its own, or start the "
                "coordinator on the host that has it",
            errnum};
  return system_error(errnum, where);
}

Result<UniqueFd> bind_and_listen(const asio::ip::tcp::endpoint& endpoint,
                                 const ListenOptions& options) {
  UniqueFd fd{
      ::socket(endpoint.protocol().family(), SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0)};
  if (!fd) return bind_error(errno, options.at);
  const int on = 1;
  const int only_v6 = options.is_dual_stack ? 0 : 1;
  ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (endpoint.address().is_v6())
    ::setsockopt(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, &only_v6, sizeof only_v6);
  if (::bind(fd.get(), endpoint.data(), static_cast<socklen_t>(endpoint.size())) != 0 ||
      ::listen(fd.get(), INT_MAX) != 0)  // the kernel limits it to net.core.somaxconn
    return bind_error(errno, options.at);
  return fd;
}

UniqueFd spare_descriptor() { return UniqueFd{::open("/dev/null", O_RDONLY | O_CLOEXEC)}; }

}  // namespace

Result<std::shared_ptr<Listener>> Listener::open(asio::io_context& io, ListenOptions options) {
  boost::system::error_code failed;
  const auto address = asio::ip::make_address(options.at.host, failed);
  if (failed)
    return Error{Errc::bad_config, "listen at '" + options.at.host + "': not a numeric address"};
  if (!options.tls && !options.is_insecure && !address.is_loopback())
    return Error{
        Errc::not_permitted,
        "listen at " + describe(options.at) +
            " without a secret: any process that reaches it could control the job. Make a secret "
            "with acc-launch --make_secret, or give --insecure"};
  auto socket = bind_and_listen({address, options.at.port}, options);
  if (!socket && options.is_dual_stack && socket.error().errnum == EAFNOSUPPORT) {
    options.at.host = "0.0.0.0";
    socket = bind_and_listen({asio::ip::tcp::v4(), options.at.port}, options);
  }
  if (!socket) return socket.error();
  return std::make_shared<Listener>(io, std::move(options), std::move(*socket), spare_descriptor());
}

Listener::Listener(asio::io_context& io, ListenOptions options, UniqueFd socket, UniqueFd spare)
    : io_{io},
      options_{std::move(options)},
      acceptor_{io},
      spare_{std::move(spare)},
      timer_{io},
      pause_{io},
      admission_{options_.admission} {
  const bool is_v6 = options_.at.host.find(':') != std::string::npos;
  Channel::set_options(socket.get(), options_.channel);
  acceptor_.assign(is_v6 ? asio::ip::tcp::v6() : asio::ip::tcp::v4(), socket.release());
}

Listener::~Listener() = default;

HostPort Listener::at() const {
  boost::system::error_code failed;
  const auto endpoint = acceptor_.local_endpoint(failed);
  return failed ? HostPort{} : host_port(endpoint);
}

void Listener::start(OnPeer on_peer, OnTurnedAway on_turned_away) {
  on_peer_ = std::move(on_peer);
  on_turned_away_ = std::move(on_turned_away);
  wait();
}

void Listener::stop() {
  boost::system::error_code ignored;
  acceptor_.close(ignored);
  timer_.cancel();
  pause_.cancel();
  for (const auto& [id, connection] : std::exchange(half_open_, {})) admission_.passed(id);
}

void Listener::wait() {
  acceptor_.async_wait(Acceptor::wait_read,
                       [weak = weak_from_this()](boost::system::error_code failed) {
                         const auto self = weak.lock();
                         if (self && !failed && self->acceptor_.is_open()) self->accept_batch();
                       });
}

void Listener::accept_batch() {
  for (int i = 0; i < kBatch; ++i) {
    asio::ip::tcp::endpoint from;
    auto length = static_cast<socklen_t>(from.capacity());
    UniqueFd socket{
        ::accept4(acceptor_.native_handle(), from.data(), &length, SOCK_NONBLOCK | SOCK_CLOEXEC)};
    if (socket) {
      from.resize(length);
      take(std::move(socket), host_port(from));
      if (!acceptor_.is_open()) return;  // a handler of the new connection stopped the listener
      continue;
    }
    if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
      if (turn_one_away()) continue;
      pause_.expires_after(kNoDescriptors);
      pause_.async_wait([weak = weak_from_this()](boost::system::error_code cancelled) {
        const auto self = weak.lock();
        if (self && !cancelled) self->wait();
      });
      return;
    }
    // A peer that gave up before accept() is no reason to stop; other errors are retried on the
    // next event.
    if (errno != ECONNABORTED && errno != EINTR) break;
  }
  wait();
}

// Without a descriptor the connection would stay in the queue and wake the loop forever: take it
// with the spare descriptor, close it, and let the peer try again.
bool Listener::turn_one_away() {
  if (!spare_) {
    spare_ = spare_descriptor();
    return false;
  }
  spare_.reset();
  const bool is_taken = static_cast<bool>(
      UniqueFd{::accept4(acceptor_.native_handle(), nullptr, nullptr, SOCK_CLOEXEC)});
  spare_ = spare_descriptor();
  if (is_taken && on_turned_away_)
    if (const auto times = admission_.no_descriptors(clock_now()))
      on_turned_away_(
          {"a connection", "this process has no descriptors left: raise ulimit -n", *times});
  return is_taken;
}

void Listener::take(UniqueFd socket, HostPort from) {
  const ConnectionId id = ++last_;
  // Without a secret only loopback is served, and the peer must belong to our user. Another user's
  // failures are not counted as those of the address, which is ours, too.
  std::optional<std::string> objection;
  if (!options_.tls && !options_.is_insecure)
    objection = users_.objection(socket.get(), SocketUsers::Side::connects);
  const std::string source = objection ? "another user of this machine" : source_of(from.host);
  const auto verdict = admission_.accepted(id, source, clock_now());
  if (!verdict.is_trusted && !options_.tls) return admission_.dismissed(id);
  if (objection) {
    const auto times = admission_.failed(id, clock_now());
    if (times && on_turned_away_) on_turned_away_({source, *objection, *times});
    return;
  }
  if (verdict.instead) drop(*verdict.instead, "too many connections that prove nothing");
  auto channel = std::make_shared<Channel>(io_, std::move(socket), options_.tls, options_.channel,
                                           std::move(from));
  channel->start({.on_hello =
                      [weak = weak_from_this(), id](bool names_key) {
                        const auto self = weak.lock();
                        return self && self->on_hello(id, names_key);
                      },
                  .on_frame =
                      [weak = weak_from_this(), id](std::string_view frame) {
                        if (const auto self = weak.lock()) self->on_first_frame(id, frame);
                      },
                  .on_closed =
                      [weak = weak_from_this(), id](const Closed& closed) {
                        if (const auto self = weak.lock()) self->drop(id, closed.what);
                      }});
  half_open_.emplace(id, HalfOpen{std::move(channel), verdict.is_trusted, false});
  arm_timer();
}

// Before anything is spent on TLS. After `false`, drop() follows.
bool Listener::on_hello(ConnectionId id, bool names_key) {
  const auto connection = half_open_.find(id);
  if (connection == half_open_.end()) return false;
  if (!names_key) {
    connection->second.is_dismissed = !connection->second.is_trusted;
    return connection->second.is_trusted;
  }
  if (const auto older = admission_.named(id)) drop(*older, "too many handshakes at once");
  return true;
}

void Listener::on_first_frame(ConnectionId id, std::string_view frame) {
  auto connection = half_open_.extract(id);
  if (!connection) return;
  admission_.passed(id);
  if (on_peer_) on_peer_(std::move(connection.mapped().channel), frame);
}

void Listener::drop(ConnectionId id, const std::string& why) {
  const auto connection = half_open_.extract(id);
  if (!connection) return;
  if (connection.mapped().is_dismissed) return admission_.dismissed(id);
  const std::string source = source_of(connection.mapped().channel->peer().host);
  const auto times = admission_.failed(id, clock_now());
  if (times && on_turned_away_) on_turned_away_({source, why, *times});
}

void Listener::arm_timer() {
  const auto due = admission_.next_due();
  if (!due || *due >= timer_due_) return;
  timer_due_ = *due;
  timer_.expires_at(*due);
  timer_.async_wait([weak = weak_from_this()](boost::system::error_code cancelled) {
    const auto self = weak.lock();
    if (!self || cancelled) return;
    self->timer_due_ = Instant::max();
    self->on_timer();
  });
}

void Listener::on_timer() {
  const auto now = clock_now();
  while (const auto late = admission_.overdue(now))
    drop(*late, "did not prove itself and send a first message within " +
                    acc::describe(options_.admission.greeting));
  arm_timer();
}

}  // namespace acc::rendezvous
