#include "agent/daemon/peer_proxy.hpp"

#include "agent/daemon/api_call.hpp"
#include "agent/daemon/api_json.hpp"
#include "agent/daemon/http_reply_parser.hpp"
#include "agent/daemon/json_text.hpp"
#include "agent/daemon/own_address.hpp"
#include "common/endpoint.hpp"
#include "common/log.hpp"
#include "common/text.hpp"

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>

#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <exception>
#include <utility>

namespace acc::agent::daemon {

namespace asio = boost::asio;
using asio::awaitable;
using Step = ReplyParser::Step;

namespace {

constexpr std::size_t kProxyPieceBytes = 16 * 1024;  // as a TLS record
constexpr std::size_t kMostFacts = 64 * 1024;        // of one node's reply in the list
constexpr std::size_t kAskedAtOnce = 256;
constexpr std::string_view kBusy = "busy";  // says nothing of who is there
constexpr uid_t kOperator = 0;              // who named the nodes of the settings
constexpr Millis kKeptFor{2'000};
constexpr std::size_t kMostKept = 256;
/// Of the other daemon's reply; the rest is about its connection.
constexpr std::array<std::string_view, 4> kPassedBack{"allow", "retry-after", "x-acc-version",
                                                      "x-acc-from"};
constexpr std::array<std::string_view, 4> kNames{"Allow", "Retry-After", "X-Acc-Version",
                                                 "X-Acc-From"};

/// A peer that takes longer for a reply is asked whether it still answers at all: with the time of
/// a connection 5 s together.
constexpr Millis kDoubtAfter{2'000};

void log_failure(std::exception_ptr failed) {
  if (!failed) return;
  try {
    std::rethrow_exception(failed);
  } catch (const std::exception& error) {
    log::error("peer_failed", {{"why", error.what()}});
  }
}

PeerIdentity identity_in(const ReplyParser& parser) {
  // Looked for in small letters.
  return {std::string{parser.header("x-acc-identity").value_or("")},
          printable(parser.header("x-acc-node").value_or(""), 80)};
}

HttpReply failure(const PeerError& error) {
  return refused_as(error.status, error.code, error.what);
}

}  // namespace

/// One request and its reply, over a connection of its own.
struct PeerProxy::Exchange {
  Exchange(std::unique_ptr<PeerStream> over, std::string name, bool is_head)
      : stream{std::move(over)}, node{std::move(name)}, parser{is_head} {}

  std::unique_ptr<PeerStream> stream;
  std::string node;
  ReplyParser parser;
  std::function<void()> on_sent;   ///< the request, all of it
  std::function<void()> on_whole;  ///< the reply ended, and its connection may go on
  std::string input;               ///< read, and not yet parsed
  std::string body;                ///< parsed, and not yet passed on
  std::string silence{};           ///< why no answer is waited for any longer
  bool is_answered = false;        ///< or failed
  std::array<char, kProxyPieceBytes> piece{};

  /// The next step of the reply; `broken` also for its end in the middle.
  awaitable<Step> next() {
    for (;;) {
      std::size_t consumed = 0;
      const auto step = parser.feed(input, consumed, body);
      input.erase(0, consumed);
      if (step != Step::needs_more || !body.empty()) co_return step;
      const auto n = co_await stream->read_some(piece);
      if (n == 0) co_return parser.end() ? Step::done : Step::broken;
      input.append(piece.data(), n);
    }
  }
  /// Its status, and what of its body came along; nothing: `error` says why.
  awaitable<bool> ask(const asio::any_io_executor& executor, std::string request, Instant due,
                      Millis limit, PeerError& error) {
    const StreamDeadline deadline{executor, *stream, due};
    const bool is_sent = co_await stream->write(request);
    request = std::string{};
    if (is_sent && on_sent) on_sent();
    const auto step = is_sent ? co_await next() : Step::broken;
    is_answered = true;
    if (step == Step::has_head) co_return true;
    constexpr const char* kMayBeDone = "it may have carried the request out: ask for the state";
    if (!silence.empty())
      error = {504, "no_answer", silence + " (" + kMayBeDone + ")"};
    else if (deadline.is_late())
      error = {504, "no_answer",
               node + " did not answer within " + describe(limit) + " (" + kMayBeDone + ")"};
    else
      error = {502, "node_unreachable",
               node + " closed the connection without an answer: was its acc-agent stopped?"};
    co_return false;
  }
  /// For a caller: that it has gone, the other daemon learns by the end of the connection. Before
  /// that it gets the request: it may be a stop, which isn't waited for.
  static std::shared_ptr<Exchange> make(std::unique_ptr<PeerStream> over, std::string name,
                                        bool is_head, std::shared_ptr<CallerLink> caller) {
    auto made = std::make_shared<Exchange>(std::move(over), std::move(name), is_head);
    if (!caller) return made;
    made->on_sent = [caller = std::move(caller), weak = std::weak_ptr{made}] {
      caller->when_closed([weak] {
        if (const auto kept = weak.lock(); kept && kept->stream) kept->stream->close();
      });
    };
    return made;
  }
  static awaitable<void> relay(std::shared_ptr<Exchange> self, std::shared_ptr<BodyWriter> to) {
    to->when_closed([weak = std::weak_ptr{self}] {
      if (const auto kept = weak.lock(); kept && kept->stream) kept->stream->close();
    });
    for (;;) {
      const auto step = co_await self->next();
      if (!self->body.empty()) {
        const bool is_written = co_await to->write(self->body);
        self->body.clear();
        if (!is_written) co_return;
      }
      if (step == Step::done) {
        const bool goes_on = self->input.empty() && self->parser.keeps_alive();
        if (goes_on && self->on_whole) self->on_whole();
        co_return;
      }
      if (step == Step::broken) co_return to->break_off();
    }
  }
};

struct PeerProxy::Listing {
  explicit Listing(asio::io_context& io) : ready{io, Instant::max()} {}
  std::vector<NodeAnswer> answers;
  std::vector<Answerer> answerers;  ///< one for each answer
  Instant since = clock_now();
  std::size_t next = 0;
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
                     UserNames& users, ProxySettings settings)
    : io_{io},
      lookups_{io},
      turns_{io},
      jobs_{jobs},
      secret_{secret},
      users_{users},
      settings_{std::move(settings)},
      seen_{{jobs.node().identity, jobs.node().name}, settings_.port},
      kept_timer_{io} {
  seen_.set_nodes(settings_.nodes);
}

PeerProxy::~PeerProxy() = default;

NodeAddress PeerProxy::with_port(NodeAddress address) const {
  if (address.port == 0) address.port = settings_.port;
  return address;
}

std::unique_ptr<PeerStream> PeerProxy::take_kept(const std::string& line, const Tls& tls) {
  for (auto it = kept_.begin(); it != kept_.end();) {
    if (it->line != line) {
      ++it;
      continue;
    }
    auto found = std::move(*it);
    it = kept_.erase(it);
    // What comes unasked is its end.
    char byte = 0;
    const bool is_quiet = ::recv(found.stream->fd(), &byte, 1, MSG_PEEK | MSG_DONTWAIT) < 0 &&
                          (errno == EAGAIN || errno == EWOULDBLOCK);
    if (is_quiet && found.tls == tls) return std::move(found.stream);
    found.stream->close();
  }
  return nullptr;
}

void PeerProxy::keep(const std::string& line, const Tls& tls, std::unique_ptr<PeerStream> stream) {
  if (kept_.size() >= kMostKept) {
    kept_.front().stream->close();
    kept_.erase(kept_.begin());
  }
  kept_.push_back({line, tls, std::move(stream), clock_now() + kKeptFor});
  if (kept_.size() == 1) close_kept();
}

// Of those whose time is over; sets the timer for the next one.
void PeerProxy::close_kept() {
  while (!kept_.empty() && kept_.front().until <= clock_now()) {
    kept_.front().stream->close();
    kept_.erase(kept_.begin());
  }
  if (kept_.empty()) return;
  kept_timer_.expires_at(kept_.front().until);
  kept_timer_.async_wait(alive_.bind([this](boost::system::error_code cancelled) {
    if (!cancelled) close_kept();
  }));
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
  auto user = co_await users_.name_of(who);
  if (!user && user.error().code == Errc::not_found) co_return refused(403, user.error().what);
  if (!user) co_return failed(user.error(), 403);
  const auto tls = secret_.for_dialling();
  if (!tls) co_return refused_as(503, "no_secret", tls.error().what);
  const bool is_head = request.method == "HEAD";
  std::string text = peer_request(request, *target, *user, is_head);
  request.body = std::string{};
  const auto node = with_port(*address);
  const std::string line = *user + '@' + node_key(target->node, settings_.port);
  auto stream = take_kept(line, *tls);
  if (!stream) {
    Way way{target->node, node, *user, who.quota_owner(), *tls};
    auto dialled = co_await connect(std::move(way));
    if (!dialled) co_return failure(dialled.error());
    stream = std::move(*dialled);
  }
  const auto exchange = Exchange::make(std::move(stream), target->node, is_head, who.caller);
  PeerError error;
  asio::steady_timer doubt{io_, kDoubtAfter};
  doubt.async_wait(alive_.bind([this, exchange, node, tls = *tls,
                                uid = who.quota_owner()](boost::system::error_code answered) {
    if (!answered) asio::co_spawn(io_, doubt_peer(exchange, node, tls, uid), log_failure);
  }));
  const bool is_answered = co_await exchange->ask(
      io_.get_executor(), std::move(text), clock_now() + settings_.reply, settings_.reply, error);
  doubt.cancel();
  if (!is_answered) co_return failure(error);
  HttpReply reply;
  const auto& parser = exchange->parser;
  reply.status = parser.status();
  reply.content_type = parser.header("content-type").value_or("");
  for (std::size_t i = 0; i < kPassedBack.size(); ++i) {
    if (const auto value = parser.header(kPassedBack[i]))
      reply.headers.emplace_back(kNames[i], printable(*value, 500));
  }
  if (const auto where = parser.header("location"); where && where->starts_with('/'))
    reply.headers.emplace_back("Location",
                               "/v1/nodes/" + printable(target->node) + printable(*where, 500));
  if (reply.status == 204) co_return reply;
  exchange->on_whole = alive_.bind([this, line, tls = *tls, weak = std::weak_ptr{exchange}] {
    if (const auto whole = weak.lock(); whole && whole->stream)
      keep(line, tls, std::move(whole->stream));
  });
  reply.stream = [exchange](std::shared_ptr<BodyWriter> to) {
    return Exchange::relay(exchange, std::move(to));
  };
  co_return reply;
}

struct PeerProxy::Introduced {
  std::unique_ptr<PeerStream> stream;  ///< null: the connection doesn't go on
  Answerer from;
  unsigned status = 0;
  std::string body;
};

awaitable<PeerProxy::Introduction> PeerProxy::introduce(Way way, Millis limit) {
  auto dialled = co_await dial_peer(io_, lookups_, turns_, way.uid, way.to, way.tls, limit);
  // A user whose share of look-ups is used up can make attempts fail.
  const bool counts = way.uid == kOperator;
  if (!dialled) {
    if (counts && dialled.error().code != kBusy) seen_.saw(way.node, {}, clock_now());
    co_return dialled.error();
  }
  const bool is_here = is_own_door(**dialled);
  const auto exchange = std::make_shared<Exchange>(std::move(*dialled), way.node, false);
  HttpRequest request;
  request.method = "GET";
  auto text = peer_request(request, {way.node, std::string{kIdentityTarget}}, way.user, false);
  PeerError error;
  const Instant due = clock_now() + limit;
  const bool is_answered =
      co_await exchange->ask(io_.get_executor(), std::move(text), due, limit, error);
  if (!is_answered) {
    if (counts) seen_.saw(way.node, {}, clock_now());
    if (error.code == "no_answer")
      error.what = way.node + " took the connection, but did not answer within " + describe(limit) +
                   ": is the process there stopped, or another program?";
    co_return error;
  }
  const StreamDeadline deadline{io_.get_executor(), *exchange->stream, due};
  auto step = Step::needs_more;
  while (step != Step::done && step != Step::broken && exchange->body.size() <= kMostFacts)
    step = co_await exchange->next();
  Introduced made{nullptr, {identity_in(exchange->parser), is_here}, exchange->parser.status(), {}};
  seen_.saw(way.node, made.from.identity, clock_now());
  made.body = std::move(exchange->body);
  if (step == Step::done && exchange->input.empty() && exchange->parser.keeps_alive())
    made.stream = std::move(exchange->stream);
  co_return made;
}

awaitable<PeerDialled> PeerProxy::connect(Way way) {
  const auto node = way.node;
  auto made = co_await introduce(std::move(way), settings_.connect);
  if (!made) co_return made.error();
  auto wrong = co_await find_complaint(node, made->from);
  if (!wrong.empty()) co_return PeerError{502, "wrong_node", std::move(wrong)};
  // Another connection might end elsewhere.
  if (!made->stream && made->status == 403)
    co_return PeerError{403, "authentication_failed", error_in(made->body)};
  if (!made->stream)
    co_return PeerError{
        502, "node_unreachable",
        node + " closed the connection without an answer: was its acc-agent stopped?"};
  co_return std::move(made->stream);
}

bool PeerProxy::is_own_door(const PeerStream& stream) const {
  const auto to = stream.remote();
  return to.port() == settings_.port && is_own_address(to.address());
}

awaitable<std::string> PeerProxy::find_complaint(std::string node, Answerer from) {
  const auto& answered = from.identity;
  const bool leads_here = !from.is_here && seen_.is_own_in_disguise(node, answered);
  // Without nodes in the settings there is none to take this one for.
  if (leads_here && !seen_.has(node))
    co_return seen_.is_empty() ? std::string{} : leads_back(node, seen_.own());
  const Instant due = clock_now() + settings_.list;
  const auto others = seen_.suspects(node, answered, from.is_here, clock_now());
  for (const auto& other : others) {
    const bool is_same = co_await is_answered_by(other, answered, due);
    if (is_same) co_return seen_.complaint(node, other, answered);
  }
  // Of a node behind an address that is translated, its name in the settings leads back, too.
  if (!leads_here) co_return std::string{};
  const bool is_elsewhere = co_await has_other_own_name(node, due);
  co_return is_elsewhere ? leads_back(node, seen_.own()) : std::string{};
}

// Now, and not once: addresses move, and daemons start again.
awaitable<bool> PeerProxy::is_answered_by(std::string node, PeerIdentity answered, Instant due) {
  const auto address = parse_node_address(node);
  const auto tls = secret_.for_dialling();
  if (!address || !tls) co_return false;
  if (seen_.is_own(answered)) {
    // Its door may be open at another address alone.
    const bool is_here = co_await leads_to_own_door(with_port(*address), due);
    if (is_here) co_return true;
  }
  const auto left = std::chrono::duration_cast<Millis>(due - clock_now());
  if (left <= Millis{0}) co_return false;
  Way way{node, with_port(*address), "root", kOperator, *tls};
  const auto made = co_await introduce(std::move(way), left);
  if (made && made->stream) made->stream->close();
  co_return made && made->from.identity.identity == answered.identity;
}

awaitable<bool> PeerProxy::leads_to_own_door(NodeAddress node, Instant due) {
  const auto looked_up = co_await lookups_.find(kOperator, std::move(node), due);
  co_return std::ranges::any_of(looked_up.found, [this](const auto& at) {
    return at.port() == settings_.port && is_own_address(at.address());
  });
}

// Rarely asked: of a name that leads back over something else.
awaitable<bool> PeerProxy::has_other_own_name(std::string node, Instant due) {
  const auto key = node_key(node, settings_.port);
  const auto nodes = settings_.nodes;
  for (const auto& other : nodes) {
    const auto address = parse_node_address(other);
    if (!address || node_key(other, settings_.port) == key) continue;
    const bool is_here = co_await leads_to_own_door(with_port(*address), due);
    if (is_here) co_return true;
  }
  co_return false;
}

// A daemon that was stopped behind a connection's handshake, or is stuck, shakes no further hands.
awaitable<void> PeerProxy::doubt_peer(std::shared_ptr<Exchange> exchange, NodeAddress node, Tls tls,
                                      uid_t uid) {
  const auto dialled = co_await dial_peer(io_, lookups_, turns_, uid, node, tls, settings_.connect);
  if (dialled) (*dialled)->close();
  if (dialled || exchange->is_answered || dialled.error().code != "no_answer") co_return;
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
  if (const auto found = listings_.find(who.uid); found != listings_.end()) {
    const auto running = found->second;
    co_await Listing::wait(running);
    co_return json_reply(200, running->body);
  }
  const auto listing = std::make_shared<Listing>(io_);
  listings_[who.uid] = listing;
  auto user = co_await users_.name_of(who);
  for (const auto& node : settings_.nodes) listing->answers.push_back({node, {}, {}, {}});
  listing->answerers.resize(listing->answers.size());
  if (user) {
    // So many at once; a node that doesn't answer delays those behind it by 2 s.
    listing->asking = std::min(listing->answers.size(), kAskedAtOnce);
    for (std::size_t i = 0; i < std::min(listing->answers.size(), kAskedAtOnce); ++i)
      asio::co_spawn(io_, ask_some(*user, listing), [listing](std::exception_ptr) {
        if (--listing->asking > 0) return;
        listing->ready.cancel();
      });
    co_await Listing::all_asked(listing);
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
  for (std::size_t i = 0; i < listing.answers.size(); ++i)
    if (listing.answers[i].code != kBusy)
      seen_.saw(listing.answers[i].node, listing.answerers[i].identity, clock_now());
  for (std::size_t i = 0; i < listing.answers.size(); ++i) {
    auto& answer = listing.answers[i];
    if (answer.facts.empty()) continue;
    answer.error = complaint_in(listing, i);
    if (answer.error.empty()) continue;
    answer.code = "wrong_node";
    answer.facts.clear();
  }
}

// As find_complaint(), of what was just answered.
std::string PeerProxy::complaint_in(const Listing& listing, std::size_t number) const {
  const auto& node = listing.answers[number].node;
  const auto& [answered, is_here] = listing.answerers[number];
  for (const auto& other : seen_.suspects(node, answered, is_here, clock_now())) {
    if (seen_.is_answered_by(other, answered, listing.since))
      return seen_.complaint(node, other, answered);
  }
  const bool leads_here = !is_here && seen_.is_own_in_disguise(node, answered);
  const bool is_elsewhere = leads_here && std::ranges::any_of(listing.answerers, [&](auto& one) {
                              return one.is_here && seen_.is_own(one.identity);
                            });
  return is_elsewhere ? leads_back(node, seen_.own()) : std::string{};
}

awaitable<void> PeerProxy::ask_some(std::string user, std::shared_ptr<Listing> listing) {
  while (listing->next < listing->answers.size()) co_await ask_one(user, listing, listing->next++);
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
  auto stream = co_await dial_peer(io_, lookups_, turns_, kOperator, with_port(*address), *tls,
                                   settings_.list);
  if (!stream) co_return fail(stream.error().code, stream.error().what);
  listing->answerers[number].is_here = is_own_door(**stream);
  const auto exchange = std::make_shared<Exchange>(std::move(*stream), answer.node, false);
  HttpRequest request;
  request.method = "GET";
  PeerError error;
  std::string text = peer_request(request, {answer.node, "/v1/node"}, user);
  const bool is_answered =
      co_await exchange->ask(io_.get_executor(), std::move(text), due, settings_.list, error);
  if (!is_answered) co_return fail(error.code, error.what);
  const StreamDeadline deadline{io_.get_executor(), *exchange->stream, due};
  std::string facts;
  for (auto step = Step::needs_more; step != Step::done;) {
    step = co_await exchange->next();
    facts += std::exchange(exchange->body, {});
    if (step == Step::broken || facts.size() > kMostFacts)
      co_return fail("node_unreachable", answer.node + ": its answer broke off");
  }
  listing->answerers[number].identity = identity_in(exchange->parser);
  if (exchange->parser.status() == 200)
    answer.facts = std::move(facts);
  else
    fail("refused", answer.node + " refused: " + error_in(facts));
}

}  // namespace acc::agent::daemon
