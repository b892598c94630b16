#include "agent/daemon/peer_api.hpp"

#include "agent/daemon/accounts.hpp"
#include "agent/daemon/api_routes.hpp"
#include "agent/daemon/peer_rules.hpp"
#include "common/host_name.hpp"
#include "common/text.hpp"
#include "common/version.hpp"

#include <span>
#include <utility>

namespace acc::agent::daemon {

namespace asio = boost::asio;
using asio::awaitable;

awaitable<Result<Principal>> find_user(std::string name) {
  const std::string quoted = in_quotes(name, 80);
  const auto user = co_await ask_user(std::move(name));
  if (user.has_value()) co_return Principal{user->uid, user->gid, {}};
  if (user.error().code != Errc::bad_usage) co_return user.error();
  co_return Error{Errc::not_found, "no such user: " + quoted + " isn't known on " + host_name()};
}

awaitable<Result<std::string>> name_of_user(Principal who) {
  const auto user = co_await ask_user(who.uid, who.gid);
  if (user.has_error()) co_return user.error();
  if (auto wrong = user_name_complaint(user->name); !wrong.empty())
    co_return Error{Errc::not_found, "the user " + std::to_string(who.uid) +
                                         " can't be named to other nodes: " + wrong};
  co_return user->name;
}

namespace {

std::string too_many(RequestKind kind, const std::string& user) {
  const bool is_stream = kind == RequestKind::stream;
  return std::string{"too many "} + (is_stream ? "streams" : "requests") + " of " +
         in_quotes(user, 80) + " are open on " + host_name() +
         (is_stream ? ": end some (acc-ctl logs -f, attach), or try again later"
                    : ": try again in a moment");
}

/// The request of a user that is known here, within that user's share of this node.
awaitable<HttpReply> answer_user(PeerApi& peers, Principal user, std::string name, uid_t source,
                                 HttpRequest request) {
  RequestShares::Share share;
  if (user.uid != 0) {
    const auto path = std::span{request.segments}.subspan(request.segments.empty() ? 0 : 1);
    const auto kind = kind_of(request.method, path);
    share = take_share(peers.shares, source, name, kind, peers.limits);
    if (!share) co_return refused_as(429, kNodeFull, too_many(kind, name));
  }
  auto reply = co_await answer(peers.api, std::move(user), std::move(request));
  reply.headers.emplace_back("X-Acc-Version", version());
  if (reply.stream)
    reply.stream = [share, stream = std::move(reply.stream)](std::shared_ptr<BodyWriter> to) {
      return stream(std::move(to));
    };
  co_return reply;
}

awaitable<HttpReply> answer_vouched(PeerApi& peers, Principal door, HttpRequest request) {
  auto vouched = vouched_user(request);
  if (vouched.refusal.status != 0) co_return refused(vouched.refusal.status, vouched.refusal.what);
  auto user = co_await find_user(vouched.name);
  if (!user && user.error().code == Errc::not_found)
    co_return refused_as(403, "no_such_user",
                         user.error().what +
                             ": make the user there under the same name, or "
                             "submit as one that all nodes have");
  if (!user) co_return failed(user.error(), 403);
  if (user->uid == 0 && vouched.name != "root")
    co_return refused(403, in_quotes(vouched.name, 80) + " is root on " + host_name() +
                               " under another name: only \"root\" is taken for it");
  user->key_id = std::move(door.key_id);
  user->caller = std::move(door.caller);
  co_return co_await answer_user(peers, std::move(*user), std::move(vouched.name), door.uid,
                                 std::move(request));
}

awaitable<HttpReply> answer_unsigned(PeerApi& peers, Principal door, HttpRequest request) {
  if (!peers.secret.accepts(door.key_id)) {
    auto reply = refused_as(403, "authentication_failed",
                            "the secret of " + host_name() +
                                " was replaced: it has no longer the key of this connection, " +
                                door.key_id);
    reply.closes = true;
    co_return reply;
  }
  if (request.target == kIdentityTarget) {
    HttpReply reply;
    reply.status = 204;
    co_return reply;
  }
  co_return co_await answer_vouched(peers, std::move(door), std::move(request));
}

}  // namespace

// Also a refusal: who asked learns from it which node that was.
awaitable<HttpReply> answer_peer(PeerApi& peers, Principal door, HttpRequest request) {
  const auto own = peers.api.jobs.node();
  auto reply = co_await answer_unsigned(peers, std::move(door), std::move(request));
  reply.headers.emplace_back(kIdentityHeader, own.identity);
  reply.headers.emplace_back(kNodeNameHeader, printable(own.name, 80));
  co_return reply;
}

}  // namespace acc::agent::daemon
