#include "agent/daemon/http_server.hpp"

#include "common/log.hpp"

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/steady_timer.hpp>

#include <sys/socket.h>

#include <array>
#include <exception>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace acc::agent::daemon {

namespace asio = boost::asio;

namespace {

constexpr Millis kTurnedAwayTime{1'000};  ///< for the request of one that is turned away

/// The user at the other end, as it was when it connected.
std::optional<Principal> principal_of(int fd) {
  ucred peer{};
  socklen_t size = sizeof peer;
  if (::getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) return std::nullopt;
  return Principal{peer.uid, peer.gid, {}};
}

asio::awaitable<void> read_once(asio::any_io_executor executor,
                                std::unique_ptr<ByteStream> stream) {
  asio::steady_timer timer{executor, kTurnedAwayTime};
  const auto held = std::make_shared<ByteStream*>(stream.get());
  timer.async_wait([held](boost::system::error_code error) {
    if (!error && *held != nullptr) (*held)->cancel();
  });
  stream->end_writing();
  std::array<char, 4096> ignored;
  static_cast<void>(co_await stream->read_some(ignored));
  *held = nullptr;
  stream->close();
}

std::string not_mapped(uid_t uid) {
  auto reply = error_reply({403,
                            "this acc-agent runs in a user namespace that doesn't map all "
                            "users: " +
                                std::to_string(uid) +
                                " stands for all of the others, who can't be told apart; ask "
                                "as a user that it maps (/etc/subuid, /proc/PID/uid_map)"});
  return reply_head(reply, reply.body.size(), false, false) + reply.body;
}

std::string too_many() {
  auto reply = error_reply({503, "too many connections: close some, or try again later"});
  reply.headers.emplace_back("Retry-After", "1");
  return reply_head(reply, reply.body.size(), false, false) + reply.body;
}

}  // namespace

HttpServer::HttpServer(asio::io_context& io, HttpSettings settings, HttpHandler handler)
    : io_{io},
      shared_{std::make_shared<HttpShared>(HttpShared{std::move(handler), settings.times,
                                                      ClientQuota{settings.limits, settings.own}})},
      owners_{settings.owners},
      unmapped_{settings.unmapped},
      accepting_{io, "clients_wait_to_be_accepted", [this](UniqueFd fd) { take(std::move(fd)); }} {}

HttpServer::~HttpServer() = default;

Result<void> HttpServer::listen(UniqueFd listening) {
  return accepting_.start(std::move(listening));
}

void HttpServer::take(UniqueFd fd) {
  const auto who = principal_of(fd.get());
  if (!who) return;
  auto stream = unix_stream(io_.get_executor(), std::move(fd));
  if (who->uid == unmapped_) return turn_away(std::move(stream), not_mapped(who->uid));
  serve(std::move(stream), *who);
}

bool HttpServer::serve(std::unique_ptr<ByteStream> stream, Principal who) {
  if (owners_ == nullptr) return admit(std::move(stream), std::move(who));
  const auto uid = who.uid;
  const auto held = std::make_shared<std::unique_ptr<ByteStream>>(std::move(stream));
  const auto watch = alive_.watch();
  owners_->find(uid, [this, held, watch, who = std::move(who)](bool has_account) mutable {
    if (!watch.is_alive()) return;
    who.has_account = has_account;
    admit(std::move(*held), std::move(who));
  });
  return true;
}

bool HttpServer::admit(std::unique_ptr<ByteStream> stream, Principal who) {
  if (is_stopped_ || !take_place(who.quota_owner())) {
    turn_away(std::move(stream), too_many());
    return false;
  }
  run(std::move(stream), std::move(who));
  return true;
}

// One try of a few words: it gets no memory of ours. What the client sends meanwhile is read once,
// as closing a socket with unread bytes makes the kernel discard the words at the client.
void HttpServer::turn_away(std::unique_ptr<ByteStream> stream, const std::string& words) {
  constexpr std::size_t kMostAtOnce = 64;
  stream->try_write(words);
  if (is_stopped_ || turned_away_ >= kMostAtOnce) return stream->close();
  ++turned_away_;
  asio::co_spawn(io_, read_once(io_.get_executor(), std::move(stream)),
                 alive_.bind([this](const std::exception_ptr&) { --turned_away_; }));
}

bool HttpServer::take_place(uid_t owner) {
  while (!shared_->quota.take_connection(owner))
    if (!end_one_for(owner)) return false;
  return true;
}

bool HttpServer::end_one_for(uid_t owner) {
  auto& quota = shared_->quota;
  const auto loser = quota.loser_to(owner);
  if (!loser) return false;
  std::vector<HeldConnection> theirs;
  for (const auto& [number, held] : connections_)
    if (held.is_counted && held.owner == *loser)
      theirs.push_back({number, held.connection->idle_since(), held.connection->is_changing()});
  const auto number = connection_to_end(theirs);
  if (!number) return false;
  if (constexpr Millis kQuiet{60'000}; clock_now() >= next_word_) {
    next_word_ = clock_now() + kQuiet;
    log::warn("connection_ended_for_another_users",
              {{"uid",
                *loser == static_cast<uid_t>(-1) ? "none with an account" : std::to_string(*loser)},
               {"why", "no place was left, and this user held most"}});
  }
  auto& held = connections_.at(*number);
  held.is_counted = false;
  quota.give_connection(*loser);
  held.connection->give_way();
  return true;
}

void HttpServer::run(std::unique_ptr<ByteStream> stream, Principal who) {
  const auto number = next_number_++;
  const uid_t owner = who.quota_owner();
  auto made = std::make_unique<HttpConnection>(io_.get_executor(), std::move(stream),
                                               std::move(who), shared_);
  auto& connection = *made;
  connections_.emplace(number, Held{std::move(made), owner});
  asio::co_spawn(io_, connection.run(), alive_.bind([this, number](std::exception_ptr failed) {
    if (failed) log::error("connection_failed", {{"why", "an exception"}});
    ended(number);
  }));
}

void HttpServer::ended(std::uint64_t number) {
  const auto at = connections_.find(number);
  if (at->second.is_counted) shared_->quota.give_connection(at->second.owner);
  connections_.erase(at);
  if (connections_.empty() && stopped_) std::exchange(stopped_, nullptr)();
}

void HttpServer::stop(std::function<void()> done) {
  accepting_.close();
  is_stopped_ = true;
  if (connections_.empty()) return done();
  stopped_ = std::move(done);
  for (const auto& [number, held] : connections_) held.connection->stop();
}

}  // namespace acc::agent::daemon
