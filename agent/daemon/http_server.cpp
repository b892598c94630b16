#include "agent/daemon/http_server.hpp"

#include "common/log.hpp"

#include <boost/asio/co_spawn.hpp>

#include <sys/socket.h>

#include <exception>
#include <optional>
#include <string>
#include <utility>

namespace acc::agent::daemon {

namespace asio = boost::asio;

namespace {

/// The user at the other end, as it was when it connected.
std::optional<Principal> principal_of(int fd) {
  ucred peer{};
  socklen_t size = sizeof peer;
  if (::getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) return std::nullopt;
  return Principal{peer.uid, peer.gid, {}};
}

std::string too_many() {
  auto reply = error_reply({503, "too many connections: close some, or try again later"});
  reply.headers.emplace_back("Retry-After", "1");
  return reply_head(reply, reply.body.size(), false, false) + reply.body;
}

/// Too many connections: one try to say so, as this one gets no memory of ours.
void turn_away(int fd) {
  const std::string text = too_many();
  ::send(fd, text.data(), text.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
}

}  // namespace

HttpServer::HttpServer(asio::io_context& io, HttpSettings settings, HttpHandler handler)
    : io_{io},
      shared_{std::make_shared<HttpShared>(HttpShared{std::move(handler), settings.times,
                                                      ClientQuota{settings.limits, settings.own}})},
      accepting_{io, "clients_wait_to_be_accepted", [this](UniqueFd fd) { take(std::move(fd)); }} {}

HttpServer::~HttpServer() = default;

Result<void> HttpServer::listen(UniqueFd listening) {
  return accepting_.start(std::move(listening));
}

void HttpServer::take(UniqueFd fd) {
  const auto who = principal_of(fd.get());
  if (!who) return;
  if (!shared_->quota.take_connection(who->uid)) return turn_away(fd.get());
  run(unix_stream(io_.get_executor(), std::move(fd)), *who);
}

bool HttpServer::serve(std::unique_ptr<ByteStream> stream, Principal who) {
  if (stopped_ || !shared_->quota.take_connection(who.uid)) {
    stream->try_write(too_many());
    stream->close();
    return false;
  }
  run(std::move(stream), std::move(who));
  return true;
}

void HttpServer::run(std::unique_ptr<ByteStream> stream, Principal who) {
  const auto number = next_number_++;
  const uid_t of = who.uid;
  auto made = std::make_unique<HttpConnection>(io_.get_executor(), std::move(stream),
                                               std::move(who), shared_);
  auto& connection = *connections_.emplace(number, std::move(made)).first->second;
  asio::co_spawn(io_, connection.run(),
                 alive_.bind([this, number, uid = of](std::exception_ptr failed) {
                   if (failed) log::error("connection_failed", {{"why", "an exception"}});
                   ended(number, uid);
                 }));
}

void HttpServer::ended(std::uint64_t number, uid_t uid) {
  connections_.erase(number);
  shared_->quota.give_connection(uid);
  if (connections_.empty() && stopped_) std::exchange(stopped_, nullptr)();
}

void HttpServer::stop(std::function<void()> done) {
  accepting_.close();
  if (connections_.empty()) return done();
  stopped_ = std::move(done);
  for (const auto& [number, connection] : connections_) connection->stop();
}

}  // namespace acc::agent::daemon
