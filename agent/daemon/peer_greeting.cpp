#include "agent/daemon/peer_greeting.hpp"

#include "agent/daemon/api_json.hpp"
#include "agent/daemon/json_text.hpp"
#include "agent/daemon/own_address.hpp"
#include "agent/daemon/peer_exchange.hpp"
#include "agent/daemon/peer_rules.hpp"
#include "common/text.hpp"

#include <algorithm>
#include <utility>

namespace acc::agent::daemon {

using boost::asio::awaitable;
using Step = ReplyParser::Step;

namespace {

constexpr std::size_t kMostOfReply = 64 * 1024;
constexpr unsigned kTooManyRequests = 429;
constexpr unsigned kUnavailable = 503;

}  // namespace

PeerIdentity identity_in(const ReplyParser& parser) {
  // Looked for in small letters.
  return {std::string{parser.header("x-acc-identity").value_or("")},
          printable(parser.header("x-acc-node").value_or(""), 80)};
}

// A daemon listens no longer where its port refuses, and has another address where its name leads
// nowhere. Of one that is stuck or behind a broken network nothing is known, and one that is
// crowded, or that wasn't asked as this node is, shows nothing of who is there.
Sighting sighting_of(const PeerError& failed) {
  using End = Sighting::End;
  const bool is_absent = failed.code == "no_daemon" || failed.code == "unknown_host" ||
                         failed.code == "not_an_agent" || failed.code == "authentication_failed";
  const bool is_unknown = failed.code == "busy" || failed.code == kTooManyHere;
  return {is_absent ? End::absent : is_unknown ? End::unknown : End::silent, {}};
}

awaitable<PeerDialled> PeerGreeting::dial(PeerWay way, Millis limit) {
  co_return co_await dial_peer(dials_, std::move(way), limit);
}

awaitable<Introduction> PeerGreeting::introduce(PeerWay way, Millis limit) {
  const Instant due = clock_now() + limit;
  auto dialled = co_await dial(way, limit);
  if (!dialled) co_return dialled.error();
  const bool is_here = is_own_door(**dialled);
  const auto exchange = std::make_shared<PeerExchange>(std::move(*dialled), way.node, false);
  HttpRequest request;
  request.method = "GET";
  auto text = peer_request(request, {way.node, std::string{kIdentityTarget}}, way.user, false);
  PeerError error;
  const bool is_answered =
      co_await exchange->ask(dials_.io.get_executor(), std::move(text), due, limit, error);
  if (!is_answered) {
    if (error.code != "no_answer") co_return error;
    co_return PeerError{504, "no_contact",
                        way.node + " took the connection, but did not answer within " +
                            describe(limit) +
                            ": is the process there stopped, or another program?"};
  }
  const StreamDeadline deadline{dials_.io.get_executor(), *exchange->stream, due};
  auto step = Step::needs_more;
  while (step != Step::done && step != Step::broken && exchange->body.size() <= kMostOfReply)
    step = co_await exchange->next();
  const auto status = exchange->parser.status();
  if (status == kUnavailable || status == kTooManyRequests)
    co_return PeerError{kUnavailable, "busy", way.node + ": " + error_in(exchange->body)};
  Introduced made{nullptr, {identity_in(exchange->parser), is_here}, status, {}};
  made.body = std::move(exchange->body);
  if (step == Step::done && exchange->input.empty() && exchange->parser.keeps_alive())
    made.stream = std::move(exchange->stream);
  co_return made;
}

bool PeerGreeting::is_own_door(const PeerStream& stream) const {
  const auto to = stream.remote();
  return to.port() == port_ && is_own_address(to.address());
}

awaitable<bool> PeerGreeting::leads_to_own_door(NodeAddress node, Instant due) {
  constexpr uid_t kOperator = 0;  // who named the nodes of the settings
  const auto looked_up = co_await dials_.lookups.find(kOperator, std::move(node), due);
  co_return std::ranges::any_of(looked_up.found, [this](const auto& at) {
    return at.port() == port_ && is_own_address(at.address());
  });
}

}  // namespace acc::agent::daemon
