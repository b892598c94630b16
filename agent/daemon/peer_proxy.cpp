#include "agent/daemon/peer_proxy.hpp"

#include "agent/daemon/api_call.hpp"
#include "agent/daemon/api_json.hpp"
#include "agent/daemon/json_text.hpp"
#include "agent/daemon/peer_exchange.hpp"
#include "common/log.hpp"
#include "common/text.hpp"

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>

#include <algorithm>
#include <array>
#include <exception>
#include <span>
#include <utility>

namespace acc::agent::daemon {

namespace asio = boost::asio;
using asio::awaitable;
using Step = ReplyParser::Step;

namespace {

constexpr std::size_t kMostFacts = 64 * 1024;  // of one node's reply in the list
constexpr uid_t kOperator = 0;                 // who named the nodes of the settings
/// Of the other daemon's reply; the rest is about its connection.
constexpr std::array<std::string_view, 4> kPassedBack{"allow", "retry-after", "x-acc-version",
                                                      "x-acc-from"};
constexpr std::array<std::string_view, 4> kNames{"Allow", "Retry-After", "X-Acc-Version",
                                                 "X-Acc-From"};

/// A peer that takes longer for a reply is asked whether it still answers at all: with the time of
/// a connection 5 s together.
constexpr Millis kDoubtAfter{2'000};

void log_failure(std::exception_ptr failed) {
  if (failed) log::error("peer_failed", {{"why", what_of(failed)}});
}

/// What of the other daemon's reply the caller gets, but for its body.
HttpReply passed_back(const ReplyParser& parser, const std::string& node) {
  HttpReply reply;
  reply.status = parser.status();
  reply.content_type = parser.header("content-type").value_or("");
  for (std::size_t i = 0; i < kPassedBack.size(); ++i) {
    if (const auto value = parser.header(kPassedBack[i]))
      reply.headers.emplace_back(kNames[i], printable(*value, 500));
  }
  if (const auto where = parser.header("location"); where && where->starts_with('/'))
    reply.headers.emplace_back("Location", "/v1/nodes/" + printable(node) + printable(*where, 500));
  return reply;
}

std::string too_many_to(const std::string& node, RequestKind kind) {
  const bool is_stream = kind == RequestKind::stream;
  return std::string{"too many "} + (is_stream ? "streams" : "requests") + " of this user to " +
         node + " are open on this node" +
         (is_stream ? ": end some (acc-ctl logs -f, attach), or try again later"
                    : ": try again in a moment");
}

RequestKind kind_there(const HttpRequest& request) {
  constexpr std::size_t kPrefix = 4;  // v1, nodes, HOST, v1
  const std::span path{request.segments};
  return kind_of(request.method, path.subspan(std::min(kPrefix, path.size())));
}

HttpReply failure(const PeerError& error) {
  return refused_as(error.status, error.code, error.what);
}

}  // namespace

struct PeerProxy::Listing {
  explicit Listing(asio::io_context& io) : ready{io, Instant::max()} {}
  std::vector<NodeAnswer> answers;
  std::vector<Answerer> answerers;  ///< one for each answer
  std::vector<Sighting> sightings;  ///< one for each answer
  Instant since = clock_now();
  std::size_t asking = 0;
  bool is_done = false;
  std::string body;
  asio::steady_timer ready;  ///< cancelled when it is

  static awaitable<void> all_asked(std::shared_ptr<Listing> self) {
    while (self->asking > 0) co_await self->ready.async_wait(asio::as_tuple(asio::use_awaitable));
  }
  static awaitable<void> wait(std::shared_ptr<Listing> self) {
    while (!self->is_done) co_await self->ready.async_wait(asio::as_tuple(asio::use_awaitable));
  }
};

PeerProxy::PeerProxy(asio::io_context& io, const Jobs& jobs, ClusterSecret& secret,
                     ProxySettings settings)
    : io_{io},
      jobs_{jobs},
      secret_{secret},
      settings_{std::move(settings)},
      greeting_{io, settings_.port},
      check_{{jobs.node().identity, jobs.node().name},
             settings_.port,
             {[this](std::string node, Instant due) { return greet(std::move(node), due); },
              [this](std::string node, Instant due) { return leads_here(std::move(node), due); }}},
      turns_{io, settings_.listed},
      kept_{io, settings_.kept} {
  check_.set_nodes(settings_.nodes);
}

PeerProxy::~PeerProxy() = default;

NodeAddress PeerProxy::with_port(NodeAddress address) const {
  if (address.port == 0) address.port = settings_.port;
  return address;
}

RequestShares::Share PeerProxy::take_own_share(const std::string& line, RequestKind kind) {
  return kind == RequestKind::stream ? shares_.take(line + " streams", settings_.streams_of_user)
                                     : shares_.take(line, settings_.requests_of_user);
}

awaitable<HttpReply> PeerProxy::pass_on(Principal who, HttpRequest request) {
  if (who.is_of_another_node())
    co_return refused(403, "a request of another node isn't passed on to a third one");
  const auto target = split_node_target(request);
  const auto address = target ? parse_node_address(target->node) : std::nullopt;
  if (!address)
    co_return refused(400, in_quotes(request.target, 200) +
                               ": expected /v1/nodes/HOST[:PORT]/…, and behind that what the "
                               "acc-agent there is asked for");
  if (request.segments.size() > 4 && request.segments[3] == "v1" && request.segments[4] == "nodes")
    co_return refused(400, "a node is asked directly, not through another one");
  auto user = co_await name_of_user(who);
  if (!user && user.error().code == Errc::not_found) co_return refused(403, user.error().what);
  if (!user) co_return failed(user.error(), 403);
  const auto tls = secret_.for_dialling();
  if (!tls) co_return refused_as(503, "no_secret", tls.error().what);
  const bool is_head = request.method == "HEAD";
  const bool may_change = !is_head && request.method != "GET";
  std::string text = peer_request(request, *target, *user, is_head);
  request.body = std::string{};
  const auto kind = kind_there(request);
  PeerWay way{target->node, with_port(*address), *user, who.quota_owner(), *tls, kind};
  const std::string line = *user + '@' + node_key(target->node, settings_.port);
  RequestShares::Share share;
  if (who.uid != kOperator) {
    share = take_own_share(line, kind);
    if (!share) co_return refused_as(429, kTooManyHere, too_many_to(target->node, kind));
  }
  auto stream = kept_.take(line, *tls, kind);
  bool is_sure = true;
  if (!stream) {
    auto connected = co_await connect(way, may_change);
    if (!connected) co_return failure(connected.error());
    stream = std::move(connected->stream);
    is_sure = connected->is_sure;
  }
  const auto exchange = PeerExchange::make(std::move(stream), target->node, is_head, who.caller);
  exchange->share = std::move(share);
  PeerError error;
  asio::steady_timer doubt{io_, kDoubtAfter};
  doubt.async_wait(alive_.bind([this, exchange, way](boost::system::error_code answered) {
    if (!answered) asio::co_spawn(io_, doubt_peer(exchange, way), log_failure);
  }));
  const bool is_answered = co_await exchange->ask(
      io_.get_executor(), std::move(text), clock_now() + settings_.reply, settings_.reply, error);
  doubt.cancel();
  if (!is_answered) co_return failure(error);
  auto reply = passed_back(exchange->parser, target->node);
  if (reply.status == 204) co_return reply;
  // Another request over it might change something.
  if (is_sure)
    exchange->on_whole = alive_.bind([this, line, tls = *tls, weak = std::weak_ptr{exchange}] {
      if (const auto whole = weak.lock(); whole && whole->stream)
        kept_.keep(line, tls, std::move(whole->stream));
    });
  reply.stream = [exchange](std::shared_ptr<BodyWriter> to) {
    return PeerExchange::relay(exchange, std::move(to));
  };
  co_return reply;
}

awaitable<PeerProxy::Connection> PeerProxy::connect(PeerWay way, bool may_change) {
  const auto node = way.node;
  // A user whose share of look-ups is used up can make attempts fail.
  const bool counts = way.uid == kOperator;
  auto made = co_await greeting_.introduce(std::move(way), settings_.connect);
  if (!made) {
    if (counts) check_.note(node, sighting_of(made.error()));
    co_return made.error();
  }
  check_.note(node, {Sighting::End::answered, made->from.identity});
  auto verdict = co_await check_.judge(node, made->from, settings_.list);
  if (!verdict.wrong.empty()) co_return PeerError{502, "wrong_node", std::move(verdict.wrong)};
  const bool is_sure = verdict.doubt.empty();
  if (!is_sure && may_change) co_return PeerError{503, "unproven_node", std::move(verdict.doubt)};
  // Another connection might end elsewhere.
  if (!made->stream && made->status == 403)
    co_return PeerError{403, "authentication_failed", error_in(made->body)};
  if (!made->stream)
    co_return PeerError{
        502, "node_unreachable",
        node + " closed the connection without an answer: was its acc-agent stopped?"};
  co_return Connected{std::move(made->stream), is_sure};
}

// In root's name: the answer counts for all users.
awaitable<Sighting> PeerProxy::greet(std::string node, Instant due) {
  const auto address = parse_node_address(node);
  const auto tls = secret_.for_dialling();
  const auto left = std::chrono::duration_cast<Millis>(due - clock_now());
  if (!address || !tls || left <= Millis{0}) co_return Sighting{};
  PeerWay way{node, with_port(*address), "root", kOperator, *tls};
  const auto made = co_await greeting_.introduce(std::move(way), left);
  if (!made) co_return sighting_of(made.error());
  if (made->stream) made->stream->close();
  co_return Sighting{Sighting::End::answered, made->from.identity};
}

awaitable<bool> PeerProxy::leads_here(std::string node, Instant due) {
  const auto address = parse_node_address(node);
  if (!address) co_return false;
  co_return co_await greeting_.leads_to_own_door(with_port(*address), due);
}

// A daemon that was stopped behind a connection's handshake, or is stuck, shakes no further hands.
awaitable<void> PeerProxy::doubt_peer(std::shared_ptr<PeerExchange> exchange, PeerWay way) {
  const auto dialled = co_await greeting_.dial(std::move(way), settings_.connect);
  if (dialled) (*dialled)->close();
  if (dialled || exchange->is_answered || dialled.error().code != "no_contact") co_return;
  exchange->silence = dialled.error().what;
  exchange->stream->cancel();
}

// ---- all nodes ----

awaitable<HttpReply> PeerProxy::list(Principal who) {
  if (who.is_of_another_node())
    co_return refused(403, "a node is asked for itself (/v1/node), not for others");
  if (settings_.nodes.empty()) {
    NodeAnswer own{jobs_.node().name, encode_node(jobs_.node(), jobs_.list(who)), {}, {}};
    co_return json_reply(200, encode_nodes({std::move(own)}));
  }
  // First, as it may fail for want of threads: others of this user would wait for ever.
  auto user = co_await name_of_user(who);
  if (const auto found = listings_.find(who.uid); found != listings_.end()) {
    const auto running = found->second;
    co_await Listing::wait(running);
    co_return json_reply(200, running->body);
  }
  const auto listing = std::make_shared<Listing>(io_);
  listings_[who.uid] = listing;
  for (const auto& node : settings_.nodes) listing->answers.push_back({node, {}, {}, {}});
  listing->answerers.resize(listing->answers.size());
  listing->sightings.resize(listing->answers.size());
  if (user) {
    co_await ask_all(*user, who.uid, listing);
    compare(*listing);
    listing->body = encode_nodes(listing->answers);
  } else {
    listing->body = encode_nodes({});
  }
  listing->is_done = true;
  listing->ready.cancel();
  listings_.erase(who.uid);
  if (!user) co_return refused(403, user.error().what);
  co_return json_reply(200, listing->body);
}

// When all have answered: of two nodes for which one daemon does, the first has no sign of that.
void PeerProxy::compare(Listing& listing) {
  std::vector<std::string> nodes;
  for (std::size_t i = 0; i < listing.answers.size(); ++i) {
    nodes.push_back(listing.answers[i].node);
    check_.note(nodes.back(), listing.sightings[i]);
  }
  for (std::size_t i = 0; i < listing.answers.size(); ++i) {
    auto& answer = listing.answers[i];
    if (answer.facts.empty()) continue;
    answer.error = check_.complaint_in(nodes, listing.answerers, i, listing.since);
    if (answer.error.empty()) {
      check_.accept_listed(nodes[i], listing.answerers[i]);
      continue;
    }
    answer.code = "wrong_node";
    answer.facts.clear();
  }
}

// As many at once as there are turns; a node that doesn't answer delays those behind it by 2 s.
awaitable<void> PeerProxy::ask_all(std::string user, uid_t uid, std::shared_ptr<Listing> listing) {
  listing->asking = listing->answers.size();
  for (std::size_t i = 0; i < listing->answers.size(); ++i)
    asio::co_spawn(io_, ask_in_turn(user, uid, listing, i), [listing](std::exception_ptr) {
      if (--listing->asking > 0) return;
      listing->ready.cancel();
    });
  co_await Listing::all_asked(listing);
}

awaitable<void> PeerProxy::ask_in_turn(std::string user, uid_t uid,
                                       std::shared_ptr<Listing> listing, std::size_t number) {
  const auto turn = co_await turns_.wait(uid == kOperator);
  if (turn) co_await ask_one(std::move(user), std::move(listing), number);
}

awaitable<void> PeerProxy::ask_one(std::string user, std::shared_ptr<Listing> listing,
                                   std::size_t number) {
  auto& answer = listing->answers[number];
  const auto fail = [&answer](std::string_view code, std::string what) {
    answer.code = code;
    answer.error = std::move(what);
  };
  const auto address = parse_node_address(answer.node);
  const auto tls = secret_.for_dialling();
  if (!address) co_return fail("bad_request", in_quotes(answer.node, 80) + " is no HOST[:PORT]");
  if (!tls) co_return fail("no_secret", tls.error().what);
  const Instant due = clock_now() + settings_.list;
  PeerWay way{answer.node, with_port(*address), user, kOperator, *tls};
  auto stream = co_await greeting_.dial(std::move(way), settings_.list);
  if (!stream) {
    listing->sightings[number] = sighting_of(stream.error());
    co_return fail(stream.error().code, stream.error().what);
  }
  auto& answerer = listing->answerers[number];
  answerer.is_here = greeting_.is_own_door(**stream);
  const auto exchange = std::make_shared<PeerExchange>(std::move(*stream), answer.node, false);
  HttpRequest request;
  request.method = "GET";
  PeerError error;
  std::string text = peer_request(request, {answer.node, "/v1/node"}, user);
  const bool is_answered =
      co_await exchange->ask(io_.get_executor(), std::move(text), due, settings_.list, error);
  if (!is_answered) co_return fail(error.code, error.what);
  answerer.identity = identity_in(exchange->parser);
  listing->sightings[number] = {Sighting::End::answered, answerer.identity};
  const StreamDeadline deadline{io_.get_executor(), *exchange->stream, due};
  std::string facts;
  for (auto step = Step::needs_more; step != Step::done;) {
    step = co_await exchange->next();
    facts += std::exchange(exchange->body, {});
    if (step == Step::broken || facts.size() > kMostFacts)
      co_return fail("node_unreachable", answer.node + ": its answer broke off");
  }
  if (exchange->parser.status() == 200)
    answer.facts = std::move(facts);
  else
    fail("refused", answer.node + " refused: " + error_in(facts));
}

}  // namespace acc::agent::daemon
