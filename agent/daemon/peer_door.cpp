#include "agent/daemon/peer_door.hpp"

#include "common/endpoint.hpp"
#include "common/log.hpp"
#include "common/text.hpp"
#include "rendezvous/channel.hpp"

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/use_awaitable.hpp>

#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <exception>
#include <functional>
#include <span>
#include <utility>

namespace acc::agent::daemon {

namespace asio = boost::asio;
using asio::ip::tcp;
using rendezvous::Io;

namespace {

/// Of a peer that lives, also on a busy machine; a longer one gives its place to one that waits.
constexpr Millis kLongHandshake{1000};
constexpr std::size_t kHandshakesOfSource = 64;  ///< at a time
constexpr std::size_t kHello = 2 * 1024;  ///< bytes of a first message that are examined

Result<UniqueFd> bind_and_listen(const tcp::endpoint& at, bool is_dual_stack) {
  UniqueFd fd{::socket(at.protocol().family(), SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0)};
  const int on = 1;
  const int only_v6 = is_dual_stack ? 0 : 1;
  if (fd) ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (fd && at.address().is_v6())
    ::setsockopt(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, &only_v6, sizeof only_v6);
  if (fd && ::bind(fd.get(), at.data(), static_cast<socklen_t>(at.size())) == 0 &&
      ::listen(fd.get(), INT_MAX) == 0)  // the kernel limits it to net.core.somaxconn
    return fd;
  const int why = errno;  // writing an address down sets it to 0
  return system_error(why, "--listen " + join_host_port(at.address().to_string(), at.port()));
}

/// For the quota of connections; two that share a number share their quota. Never root's.
uid_t number_of(const std::string& host) {
  return static_cast<uid_t>(std::hash<std::string>{}(host)) | 1U;
}

/// Root of a host is another source than its users, by the port that only root may use: a user who
/// fills the places of a source doesn't shut out the daemon there.
std::string source_by_rights(const tcp::endpoint& from) {
  const auto source = rendezvous::source_of(rendezvous::host_port(from).host);
  return from.port() < IPPORT_RESERVED ? source + ", a port below 1024" : source;
}

std::string plain_http_answer() {
  auto reply = error_reply(
      {400,
       "this port speaks TLS with the cluster's secret, to other acc-agents only: ask the "
       "acc-agent of your own node over its unix socket, which passes requests on as "
       "/v1/nodes/HOST/…"});
  return reply_head(reply, reply.body.size(), false, false) + reply.body;
}

/// Last words to a peer, before any TLS of ours.
void answer_in_clear(int fd, std::string_view text) {
  ::send(fd, text.data(), text.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
  ::shutdown(fd, SHUT_WR);
  // Unread input would turn the orderly close into a reset.
  std::array<char, 16 * 1024> rest;
  while (::recv(fd, rest.data(), rest.size(), MSG_DONTWAIT) == static_cast<ssize_t>(rest.size()))
    continue;
}

/// To a peer that speaks no TLS, in its own language.
std::string answer_without_tls(std::string_view first) {
  return rendezvous::recognise(first) == rendezvous::Speech::http
             ? plain_http_answer()
             : std::string{rendezvous::kAlertNeedsTls};
}

/// What a connection has sent first, not taken from it.
std::string_view first_bytes(int fd, std::span<char> into) {
  const auto n = ::recv(fd, into.data(), into.size(), MSG_PEEK | MSG_DONTWAIT);
  return n <= 0 ? std::string_view{} : std::string_view{into.data(), static_cast<std::size_t>(n)};
}

std::string key_ids(const rendezvous::Secret& secret) {
  std::vector<std::string> ids;
  for (const auto& key : secret.keys) ids.push_back(key.id);
  return join(ids, ", ");
}

}  // namespace

PeerDoor::PeerDoor(asio::io_context& io, ClusterSecret& secret, HttpServer& server,
                   rendezvous::AdmissionLimits limits)
    : io_{io},
      secret_{secret},
      server_{server},
      timer_{io},
      limits_{limits},
      admission_{limits},
      accepting_{io, "peers_wait_to_be_accepted", [this](UniqueFd fd) { take(std::move(fd)); }} {}

PeerDoor::~PeerDoor() = default;

Result<void> PeerDoor::listen(const NodeAddress& at) {
  if (const auto secret = secret_.secret(); !secret)
    return Error{Errc::bad_config, "--listen: " + secret.error().what};
  boost::system::error_code wrong;
  const auto address = at.host.empty() ? asio::ip::address{asio::ip::address_v6::any()}
                                       : asio::ip::make_address(at.host, wrong);
  if (wrong) return Error{Errc::bad_config, "--listen " + at.host + ": not a numeric address"};
  auto bound = bind_and_listen({address, at.port}, at.host.empty());
  // A kernel without IPv6.
  if (!bound && at.host.empty())
    bound = bind_and_listen({asio::ip::address_v4::any(), at.port}, false);
  if (!bound) return bound.error();
  return accepting_.start(std::move(*bound));
}

void PeerDoor::stop() {
  accepting_.close();
  timer_.cancel();
  for (auto& [id, one] : half_open_) one.stream->close();
  for (auto& [source, turns] : turns_)
    for (auto& [id, turn] : turns.waiting) turn->cancel();
}

void PeerDoor::take(UniqueFd socket) {
  tcp::endpoint from;
  auto length = static_cast<socklen_t>(from.capacity());
  if (::getpeername(socket.get(), from.data(), &length) != 0) return;  // it has gone already
  from.resize(length);
  const Id id = ++last_;
  const auto source = source_by_rights(from);
  const auto verdict = admission_.accepted(id, source, clock_now());
  if (verdict.instead) make_room(*verdict.instead);
  auto stream = std::make_unique<PeerStream>(io_.get_executor(), std::move(socket),
                                             from.protocol() == tcp::v6());
  half_open_.emplace(id, HalfOpen{stream.get(), source, clock_now()});
  arm_timer();
  asio::co_spawn(io_, greet(id, {from, source, verdict.is_trusted}, std::move(stream)),
                 alive_.bind([this, id, source](std::exception_ptr error) {
                   if (!error) return;
                   log::error("peer_failed", {{"why", "an exception"}});
                   end_turn(id, source);
                   half_open_.erase(id);
                   admission_.passed(id);
                 }));
}

asio::awaitable<void> PeerDoor::greet(Id id, Peer peer, std::unique_ptr<PeerStream> stream) {
  const auto watch = alive_.watch();
  const Outcome outcome = co_await prove(id, peer, *stream);
  if (!watch.is_alive()) co_return;
  half_open_.erase(id);
  if (outcome.why.empty() && !outcome.is_dismissed) {
    admission_.passed(id);
    const auto host = rendezvous::host_port(peer.from).host;
    Principal who{number_of(host), 0, stream->tls().proof().key_id};
    if (!server_.serve(std::move(stream), std::move(who)))
      log::warn("peer_refused", {{"source", host}, {"why", "too many connections"}});
    co_return;
  }
  stream->close();
  if (outcome.is_dismissed)
    admission_.dismissed(id);
  else
    failed(id, peer.source, outcome.why);
}

asio::awaitable<PeerDoor::Outcome> PeerDoor::prove(Id id, const Peer& peer, PeerStream& stream) {
  const auto watch = alive_.watch();
  const bool has_bytes = co_await stream.readable();
  if (!has_bytes) co_return Outcome{false, "closed the connection"};
  const auto tls = secret_.for_listening();
  if (!tls) {
    log::error("secret_lost", {{"why", tls.error().what}});
    co_return Outcome{true, {}};
  }
  std::array<char, kHello> bytes;
  const auto first = first_bytes(stream.fd(), bytes);
  if (first.empty()) co_return Outcome{false, "closed the connection"};
  const bool is_named = rendezvous::names_key((*tls)->secret(), first);
  if (!is_named) {
    if (!peer.is_trusted) co_return Outcome{true, {}};
  } else if (is_crowded(id)) {
    answer_in_clear(stream.fd(), rendezvous::kAlertBusy);
    co_return Outcome{true, {}};
  }
  if (first[0] != '\x16') {
    answer_in_clear(stream.fd(), answer_without_tls(first));
    co_return Outcome{false, "speaks no TLS"};
  }
  if (is_named) {
    const bool has_turn = co_await await_turn(id, peer.source);
    if (!has_turn) co_return Outcome{true, {}};
  }
  const Io io = co_await stream.shake_hands(*tls);
  if (!watch.is_alive()) co_return Outcome{true, {}};
  end_turn(id, peer.source);
  const auto& proof = stream.tls().proof();
  const auto accepted = key_ids((*tls)->secret());
  const auto names_it = [&](const auto& key) { return key.id == proof.key_id; };
  const auto fault = stream.tls().fault();
  const bool has_left =
      fault == rendezvous::StreamFault::none || fault == rendezvous::StreamFault::reset;
  if (io != Io::done && has_left && std::ranges::any_of((*tls)->secret().keys, names_it))
    co_return Outcome{false, "closed the connection during the handshake"};
  if (io != Io::done)
    co_return Outcome{false, "authentication failed: it named " +
                                 (proof.key_id.empty() ? "no key of a cluster"
                                                       : "key id " + printable(proof.key_id, 20)) +
                                 ", accepted: " + accepted};
  if (proof.job != kPeerJob) co_return Outcome{false, "holds the key of a job, not of a node"};
  co_return Outcome{};
}

// The oldest of those that named no key yet. It may have done so meanwhile, and only wait for its
// turn on this loop, as when all nodes of a job start at once.
void PeerDoor::make_room(Id older) {
  const auto found = half_open_.find(older);
  const auto tls = secret_.for_listening();
  if (found != half_open_.end() && !found->second.stream->has_begun() && tls) {
    std::array<char, kHello> bytes;
    if (rendezvous::names_key((*tls)->secret(), first_bytes(found->second.stream->fd(), bytes))) {
      if (!is_crowded(older)) {
        if (admission_.half_open() <= limits_.half_open) return;  // there is room but for nameless ones
        older = newest_of_largest_source();
      }
      admission_.dismissed(older);  // no failure
    }
  }
  drop(older, "too many connections that prove nothing");
}

// All name a key, which is no proof: one handshake of a node shows its id. Where the
// most come from, one more is to come again; one that waits for its turn rather than one whose
// handshake goes on.
PeerDoor::Id PeerDoor::newest_of_largest_source() const {
  struct Source {
    std::size_t count = 0;
    Id newest = 0;
    Id newest_waiting = 0;
  };
  std::map<std::string_view, Source> sources;
  const Source* largest = nullptr;
  for (const auto& [id, one] : half_open_) {
    if (one.is_dropped) continue;
    auto& source = sources[one.source];
    ++source.count;
    source.newest = id;
    if (!one.stream->has_begun()) source.newest_waiting = id;
    if (largest == nullptr || source.count >= largest->count) largest = &source;
  }
  if (largest == nullptr) return 0;
  return largest->newest_waiting != 0 ? largest->newest_waiting : largest->newest;
}

// More than wait for their turn. This one is to come again.
bool PeerDoor::is_crowded(Id named) { return admission_.named(named).has_value(); }

// False: it took too long, or the door closes. A handshake that goes on isn't broken off for
// another one before it is long: its peer may take it for done already, as in TLS 1.3 it has
// nothing more to wait for.
asio::awaitable<bool> PeerDoor::await_turn(Id id, std::string source) {
  const auto watch = alive_.watch();
  while (turns_[source].running.size() >= kHandshakesOfSource) {
    hurry(source);
    auto& turns = turns_[source];
    if (turns.running.size() < kHandshakesOfSource) break;
    Instant next = Instant::max();
    for (const auto& [other, since] : turns.running) next = std::min(next, since + kLongHandshake);
    const auto turn = std::make_shared<asio::steady_timer>(io_, next);
    turns.waiting.emplace(id, turn);
    co_await turn->async_wait(asio::as_tuple(asio::use_awaitable));
    if (!watch.is_alive()) co_return false;
    turns_[source].waiting.erase(id);
    const auto one = half_open_.find(id);
    if (one != half_open_.end() && !one->second.is_dropped && accepting_.is_open()) continue;
    wake_next(source);  // it may have been this one's turn
    co_return false;
  }
  turns_[source].running.emplace(id, clock_now());
  co_return true;
}

void PeerDoor::end_turn(Id id, const std::string& source) {
  const auto found = turns_.find(source);
  if (found == turns_.end()) return;
  found->second.running.erase(id);
  wake_next(source);
}

void PeerDoor::wake_next(const std::string& source) {
  const auto found = turns_.find(source);
  if (found == turns_.end()) return;
  auto& [running, waiting] = found->second;
  if (waiting.empty()) {
    if (running.empty()) turns_.erase(found);
  } else if (running.size() < kHandshakesOfSource) {
    waiting.begin()->second->cancel();
    waiting.erase(waiting.begin());
  }
}

// Ends the handshakes that have gone on for too long, as others wait.
void PeerDoor::hurry(const std::string& source) {
  std::vector<Id> late;
  for (const auto& [id, since] : turns_[source].running)
    if (clock_now() - since >= kLongHandshake) late.push_back(id);
  for (const Id id : late) {
    drop(id, "a handshake of more than " + describe(kLongHandshake) + " while others wait");
    end_turn(id, source);
  }
}

// It counts at once; its coroutine ends in this turn of the loop.
void PeerDoor::drop(Id id, const std::string& why) {
  const auto found = half_open_.find(id);
  if (found == half_open_.end()) return admission_.dismissed(id);
  found->second.is_dropped = true;
  failed(id, found->second.source, why);
  auto& stream = *found->second.stream;
  if (!stream.has_begun()) answer_in_clear(stream.fd(), rendezvous::kAlertBusy);
  stream.close();
  const auto turns = turns_.find(found->second.source);
  if (turns == turns_.end()) return;
  const auto turn = turns->second.waiting.find(id);
  if (turn == turns->second.waiting.end()) return;
  turn->second->cancel();
  turns->second.waiting.erase(turn);
}

void PeerDoor::failed(Id id, const std::string& source, const std::string& why) {
  if (const auto times = admission_.failed(id, clock_now()))
    log::warn("peer_refused",
              {{"source", source}, {"why", printable(why, 300)}, {"times", *times}});
}

void PeerDoor::arm_timer() {
  const auto due = admission_.next_due();
  if (!due || *due >= timer_due_) return;
  timer_due_ = *due;
  timer_.expires_at(*due);
  timer_.async_wait(alive_.bind([this](boost::system::error_code cancelled) {
    if (cancelled) return;
    timer_due_ = Instant::max();
    while (const auto late = admission_.overdue(clock_now()))
      drop(*late, "did not prove itself within " + describe(limits_.greeting));
    arm_timer();
  }));
}

}  // namespace acc::agent::daemon
