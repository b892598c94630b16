#include "agent/daemon/peer_api.hpp"

#include "agent/daemon/api_routes.hpp"
#include "agent/daemon/login_user.hpp"
#include "agent/daemon/on_pool.hpp"
#include "agent/daemon/peer_rules.hpp"
#include "common/host_name.hpp"
#include "common/text.hpp"
#include "common/version.hpp"

#include <functional>
#include <utility>

namespace acc::agent::daemon {

namespace asio = boost::asio;
using asio::awaitable;

UserNames::UserNames() = default;
UserNames::~UserNames() {
  if (pool_) pool_->join();
}

asio::thread_pool& UserNames::pool() {
  if (!pool_) pool_ = std::make_unique<asio::thread_pool>(1);
  return *pool_;
}

awaitable<Result<Principal>> UserNames::find(std::string name) {
  std::function<Result<LoginUser>()> look = [name] { return look_up_user(name); };
  const auto user = co_await on_pool(pool(), std::move(look));
  if (!user) {
    if (user.error().code == Errc::bad_usage)
      co_return Error{Errc::not_found,
                      "no such user: " + in_quotes(name, 80) + " isn't known on " + host_name()};
    co_return user.error();
  }
  co_return Principal{user->uid, user->gid, {}};
}

awaitable<Result<std::string>> UserNames::name_of(Principal who) {
  std::function<Result<LoginUser>()> look = [uid = who.uid, gid = who.gid] {
    return look_up_user(uid, gid);
  };
  const auto user = co_await on_pool(pool(), std::move(look));
  if (!user) co_return user.error();
  if (auto wrong = user_name_complaint(user->name); !wrong.empty())
    co_return Error{Errc::not_found, "the user " + std::to_string(who.uid) +
                                         " can't be named to other nodes: " + wrong};
  co_return user->name;
}

awaitable<HttpReply> answer_peer(ApiContext& api, UserNames& users, ClusterSecret& secret,
                                 Principal door, HttpRequest request) {
  if (!secret.accepts(door.key_id)) {
    auto reply = refused_as(403, "authentication_failed",
                            "the secret of " + host_name() +
                                " was replaced: it has no longer the key of this connection, " +
                                door.key_id);
    reply.closes = true;
    co_return reply;
  }
  const auto own = api.jobs.node();
  const auto sign = [&own](HttpReply& reply) {
    reply.headers.emplace_back(kIdentityHeader, own.identity);
    reply.headers.emplace_back(kNodeNameHeader, printable(own.name, 80));
  };
  if (request.target == kIdentityTarget) {
    HttpReply reply;
    reply.status = 204;
    sign(reply);
    co_return reply;
  }
  auto vouched = vouched_user(request);
  if (vouched.refusal.status != 0) co_return refused(vouched.refusal.status, vouched.refusal.what);
  auto user = co_await users.find(vouched.name);
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
  auto reply = co_await answer(api, std::move(*user), std::move(request));
  reply.headers.emplace_back("X-Acc-Version", version());
  sign(reply);
  co_return reply;
}

}  // namespace acc::agent::daemon
