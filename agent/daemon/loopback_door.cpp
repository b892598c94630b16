#include "agent/daemon/loopback_door.hpp"

#include "agent/daemon/api_routes.hpp"
#include "agent/daemon/peer_stream.hpp"
#include "agent/daemon/status_page.hpp"
#include "common/endpoint.hpp"
#include "common/log.hpp"
#include "common/random.hpp"
#include "common/text.hpp"

#include <boost/asio/ip/tcp.hpp>

#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <ctime>
#include <utility>

namespace acc::agent::daemon {

namespace asio = boost::asio;
using asio::awaitable;
using asio::ip::tcp;

namespace {

/// Of connections whose user the kernel doesn't tell: they share one quota.
constexpr uid_t kUnknownUser = static_cast<uid_t>(-2);
constexpr std::int64_t kTicketSeconds = 60;
constexpr unsigned kTooManyRequests = 429;

HttpSettings loopback_settings(uid_t own, QuotaOwners* owners, const HttpLimits& limits) {
  HttpSettings settings;
  settings.owners = owners;
  settings.own = own;
  settings.limits = limits;
  return settings;
}

std::int64_t wall_seconds() { return static_cast<std::int64_t>(std::time(nullptr)); }

Principal token_user(uid_t uid, gid_t gid) {
  Principal who{uid, gid, {}};
  who.has_token = true;
  return who;
}

/// A browser shows nothing of this inside of, or to, another page.
void for_browsers(HttpReply& reply) {
  reply.headers.emplace_back("Referrer-Policy", "no-referrer");
  reply.headers.emplace_back("Cross-Origin-Resource-Policy", "same-origin");
  const bool has_policy = std::ranges::any_of(
      reply.headers, [](const auto& header) { return header.first == "Content-Security-Policy"; });
  if (!has_policy) reply.headers.emplace_back("Content-Security-Policy", "frame-ancestors 'none'");
}

Result<UniqueFd> listen_at(const NodeAddress& at) {
  boost::system::error_code wrong;
  const tcp::endpoint endpoint{asio::ip::make_address(at.host, wrong), at.port};
  const std::string attempted = "--http " + join_host_port(at.host, at.port);
  if (wrong) return Error{Errc::bad_config, attempted + ": not a numeric address"};
  UniqueFd fd{
      ::socket(endpoint.protocol().family(), SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0)};
  const int on = 1;
  if (fd) ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (fd && ::bind(fd.get(), endpoint.data(), static_cast<socklen_t>(endpoint.size())) == 0 &&
      ::listen(fd.get(), SOMAXCONN) == 0)
    return fd;
  return system_error(errno, attempted);
}

}  // namespace

LoopbackDoor::LoopbackDoor(asio::io_context& io, ApiContext& api, QuotaOwners* owners,
                           const HttpLimits& limits)
    : io_{io},
      api_{api},
      server_{io, loopback_settings(api.own, owners, limits),
              [this](Principal door, HttpRequest request) {
                return answer_client(std::move(door), std::move(request));
              }},
      accepting_{io, "http_clients_wait_to_be_accepted",
                 [this](UniqueFd socket) { take(std::move(socket)); }} {}

Result<void> LoopbackDoor::listen(const NodeAddress& at, const std::string& key_file) {
  key_file_ = key_file;
  if (auto opened = reload(); !opened) return opened;
  auto bound = listen_at(at);
  if (!bound) return bound.error();
  at_ = at;
  return accepting_.start(std::move(*bound));
}

Result<void> LoopbackDoor::reload() {
  auto opened = AccessTokens::open(key_file_);
  if (!opened) return Error{opened.error().code, "--http: " + opened.error().what};
  tokens_.emplace(std::move(*opened));
  return {};
}

void LoopbackDoor::stop(std::function<void()> done) {
  accepting_.close();
  server_.stop(std::move(done));
}

void LoopbackDoor::take(UniqueFd socket) {
  using rendezvous::SocketUsers;
  const auto other = users_.at_other_end(socket.get(), SocketUsers::Side::connects);
  if (other.known == SocketUsers::Known::gone) return;
  set_peer_options(socket.get());
  const Principal who{other.known == SocketUsers::Known::yes ? other.user : kUnknownUser, 0, {}};
  const bool is_v6 = at_.host.find(':') != std::string::npos;
  server_.serve(tcp_stream(io_.get_executor(), std::move(socket), is_v6), who);
}

// A name of its own for each port: cookies know none.
std::string LoopbackDoor::cookie_name() const { return "acc-" + std::to_string(at_.port); }

Result<IssuedToken> LoopbackDoor::issue(const Principal& who, const TokenWish& wish) {
  const auto now = wall_seconds();
  TokenClaims claims;
  claims.only_reads = wish.only_reads;
  claims.uid = who.uid;
  claims.gid = who.gid;
  claims.expires_s = now + wish.expires_s;
  claims.nonce = random_number();
  IssuedToken issued;
  issued.only_reads = wish.only_reads;
  issued.expires_ms = claims.expires_s * 1000;
  if (wish.for_browser) {
    claims.kind = TokenKind::ticket;
    claims.bound_to = claims.expires_s;
    claims.expires_s = std::min(claims.expires_s, now + kTicketSeconds);
  }
  issued.token = tokens_->sign(claims);
  issued.url = "http://" + join_host_port(at_.host, at_.port) + "/";
  if (wish.for_browser) issued.url += "?token=" + issued.token;
  const auto line = issued_.issued(who.quota_owner(), clock_now());
  if (line.left_out > 0)
    log::info("tokens_issued", {{"uid", who.uid}, {"not_logged", line.left_out}});
  if (line.is_logged)
    log::info("token_issued", {{"uid", who.uid},
                               {"only_reads", wish.only_reads},
                               {"for_browser", wish.for_browser},
                               {"expires_in_s", wish.expires_s},
                               {"further", line.is_last ? "not logged for a minute" : "logged"}});
  return issued;
}

// Expired ones were right once: an old browser window or a scraper shall not lock its user out.
HttpReply LoopbackDoor::refuse_token(uid_t source, const AccessTokens::Verdict& verdict) {
  if (verdict.is_forged && wrong_.failed(source, clock_now()))
    log::warn("token_refused",
              {{"from_uid", source == kUnknownUser ? "unknown" : std::to_string(source)},
               {"why", verdict.why},
               {"further", "not logged for a minute"}});
  auto reply = refused(401, verdict.why);
  reply.headers.emplace_back("WWW-Authenticate", "Bearer realm=\"acc-agent\"");
  return reply;
}

std::optional<TokenClaims> LoopbackDoor::identify(uid_t source, const HttpRequest& request,
                                                  HttpReply& refusal) {
  const auto given = credentials_of(request, cookie_name());
  const bool is_cookie = given.bearer.empty() && !given.is_malformed;
  if (is_cookie && given.cookie.empty()) {
    refusal = refuse_token(
        source, {std::nullopt, false,
                 "a token is needed, as Authorization: Bearer TOKEN: acc-ctl token makes one, "
                 "acc-ctl token --browser a link for a browser"});
    return std::nullopt;
  }
  const auto kind = is_cookie ? TokenKind::cookie : TokenKind::bearer;
  const auto verdict =
      tokens_->check(is_cookie ? given.cookie : given.bearer, kind, wall_seconds());
  if (!verdict.claims) {
    refusal = refuse_token(source, verdict);
    return std::nullopt;
  }
  // A browser sends the cookie to each port of this host's name, and another user may listen there.
  if (is_cookie && verdict.claims->bound_to != static_cast<std::int64_t>(source)) {
    refusal = refuse_token(source,
                           {std::nullopt, true, "this session belongs to another user's browser"});
    return std::nullopt;
  }
  return verdict.claims;
}

HttpReply LoopbackDoor::open_session(uid_t source, std::string_view ticket) {
  const auto now = wall_seconds();
  const auto verdict = tokens_->check(ticket, TokenKind::ticket, now);
  if (!verdict.claims) return refuse_token(source, verdict);
  if (source == kUnknownUser)
    return refused(403,
                   "the kernel doesn't tell whose browser this is, so that its session couldn't be "
                   "protected: send Authorization: Bearer TOKEN instead");
  if (!used_.use(*verdict.claims, now))
    return refuse_token(
        source,
        {std::nullopt, false, "this link was used already: acc-ctl token --browser makes another"});
  auto claims = *verdict.claims;
  claims.kind = TokenKind::cookie;
  claims.expires_s = std::exchange(claims.bound_to, source);
  HttpReply reply;
  reply.status = 303;
  reply.content_type = "text/plain; charset=utf-8";
  reply.body = "/\n";
  reply.headers.emplace_back("Location", "/");
  reply.headers.emplace_back(
      "Set-Cookie", cookie_name() + "=" + tokens_->sign(claims) + "; Path=/; Max-Age=" +
                        std::to_string(claims.expires_s - now) + "; HttpOnly; SameSite=Strict");
  return reply;
}

awaitable<HttpReply> LoopbackDoor::answer_client(Principal door, HttpRequest request) {
  const auto source = door.uid;
  const auto now = clock_now();
  HttpReply reply;
  if (const auto refusal = foreign_page(request); refusal.status != 0) {
    reply = refused(refusal.status, refusal.what);
  } else if (wrong_.is_blocked(source, now)) {
    const auto seconds = wrong_.blocked_for(source, now).count() / 1000 + 1;
    reply = refused(kTooManyRequests, "too many wrong tokens of this user: try again later");
    reply.headers.emplace_back("Retry-After", std::to_string(seconds));
    reply.closes = true;
  } else if (const auto ticket = ticket_of(request)) {
    reply = open_session(source, *ticket);
  } else if (auto page = page_reply(request)) {
    reply = std::move(*page);
  } else if (request.segments == std::vector<std::string>{"healthz"}) {
    const auto nobody = token_user(kUnknownUser, 0);
    reply = co_await answer(api_, nobody, std::move(request));
  } else if (const auto claims = identify(source, request, reply)) {
    if (claims->only_reads && !only_reads(request)) {
      reply =
          refused(403, "this token only reads: acc-ctl token without --read-only makes another");
    } else {
      auto who = token_user(claims->uid, claims->gid);
      who.caller = std::move(door.caller);
      reply = co_await answer(api_, who, std::move(request));
    }
  }
  for_browsers(reply);
  co_return reply;
}

}  // namespace acc::agent::daemon
