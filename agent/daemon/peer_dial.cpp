#include "agent/daemon/peer_dial.hpp"

#include "common/endpoint.hpp"
#include "common/random.hpp"
#include "common/text.hpp"
#include "rendezvous/channel.hpp"

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/use_awaitable.hpp>

#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <optional>
#include <utility>

namespace acc::agent::daemon {

namespace asio = boost::asio;
using boost::system::error_code;
using rendezvous::Io;
using rendezvous::StreamFault;

namespace {

constexpr std::array<std::string_view, 10> kCodes{
    "unknown_host", "no_daemon", "unreachable", "no_contact",    "no_answer",
    "not_an_agent", "busy",      "wrong_node",  "unproven_node", "authentication_failed"};
/// Less than the handshakes of one host that a daemon takes (AdmissionLimits).
constexpr int kMostDialsAtOnce = 32;

PeerError connect_error(const std::string& at, const error_code& error, Millis limit) {
  switch (error.value()) {
    case ECONNREFUSED:
      return {502, "no_daemon",
              at + ": connection refused: no acc-agent listens there; is it started with --listen, "
                   "and with this port?"};
    case ETIMEDOUT:
    case ECANCELED:
      return {504, "no_contact",
              "no answer from " + at + " within " + describe(limit) +
                  ": is the address right, is the host up, does a firewall drop the connection?"};
    default:
      return {502, "unreachable",
              at + ": " + error.message() + ": is the address right, is a network down?"};
  }
}

PeerError handshake_error(const std::string& at, const PeerStream& stream,
                          const rendezvous::Secret& ours, bool is_late, Millis limit) {
  if (is_late)
    return {504, "no_contact",
            at + " took the connection, but did not answer within " + describe(limit) +
                ": is the process there stopped, or another program?"};
  switch (stream.tls().fault()) {
    case StreamFault::busy:
      return {503, "busy",
              at + " has too many connections at once, also after several tries: try again"};
    case StreamFault::reset:
    case StreamFault::none:
      return {502, "unreachable",
              at + " closes connections before they are authenticated: does another program listen "
                   "there, or does the acc-agent refuse this host for a while? Its log says why"};
    case StreamFault::authentication:
      return {502, "authentication_failed",
              at + ": authentication failed: has it another secret? This node uses " + ours.path +
                  ", key id " + ours.keys.front().id +
                  "; the log of the acc-agent there names the key ids that it accepts"};
    default:
      return {502, "not_an_agent",
              at + ": no acc-agent answers there, but another program (" +
                  stream.tls().describe_fault() + "): is the port right?"};
  }
}

/// The peer closed without a word.
bool is_silent(StreamFault fault) {
  return fault == StreamFault::reset || fault == StreamFault::none;
}

/// Between two tries of a handshake.
class Pauses {
 public:
  /// Nothing: it isn't tried again. A peer that says that it is busy is tried until the deadline;
  /// one that closes without a word may be so, too, or another program.
  std::optional<Millis> next(StreamFault fault) {
    if (fault != StreamFault::busy && !(is_silent(fault) && ++silent_ < kMostSilent))
      return std::nullopt;
    longest_ = std::min(longest_ * 2, kLongestPause);
    // Those that were refused together shall not come back together.
    return Millis{1 + static_cast<int>(random_fraction() * static_cast<double>(longest_.count()))};
  }

 private:
  static constexpr int kMostSilent = 5;
  static constexpr Millis kLongestPause{320};
  Millis longest_{20};
  int silent_ = 0;
};

struct Opened {
  std::unique_ptr<PeerStream> stream;  ///< null: `failed`
  error_code failed;
};

/// @param port  a share of those that are reserved; null: from any port
asio::awaitable<Opened> connect_once(asio::io_context& io, asio::ip::tcp::endpoint to, Instant due,
                                     ReservedPorts::Share port) {
  Opened opened;
  const bool is_v6 = to.address().is_v6();
  UniqueFd fd{::socket(to.protocol().family(), SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0)};
  if (!fd) opened.failed = {errno, boost::system::system_category()};
  if (!opened.failed && port) opened.failed = bind_reserved_port(fd.get(), is_v6);
  if (opened.failed) co_return std::move(opened);
  auto stream = std::make_unique<PeerStream>(io.get_executor(), std::move(fd), is_v6);
  stream->hold(std::move(port));
  const StreamDeadline deadline{io.get_executor(), *stream, due};
  opened.failed = co_await stream->connect(to);
  if (deadline.is_late()) opened.failed = {ETIMEDOUT, boost::system::system_category()};
  // On one host a connection to a free port may connect to itself.
  if (!opened.failed && stream->is_to_itself())
    opened.failed = {ECONNREFUSED, boost::system::system_category()};
  if (!opened.failed) opened.stream = std::move(stream);
  co_return std::move(opened);
}

/// From the reserved port, or another one where that is in use; several times, as it is chosen by
/// chance.
asio::awaitable<Opened> connect_from(asio::io_context& io, asio::ip::tcp::endpoint to, Instant due,
                                     ReservedPorts::Share port) {
  constexpr int kTries = 8;
  for (int i = 1;; ++i) {
    auto opened = co_await connect_once(io, to, due, port);
    const int error = opened.failed.value();
    const bool is_port_taken = error == EADDRINUSE || error == EADDRNOTAVAIL;
    if (opened.stream || !port || !is_port_taken || i == kTries) co_return std::move(opened);
  }
}

/// One address of a node.
struct Place {
  asio::ip::tcp::endpoint to;
  std::string at;     ///< for messages
  Instant connected;  ///< until then, or another address is tried
  Instant due;        ///< for shaking hands
  Millis limit;       ///< of the whole, for messages
};

struct Dialled {
  std::unique_ptr<PeerStream> stream;
  error_code failed;                 ///< no connection came about
  std::optional<PeerError> refused;  ///< one did, and shaking hands failed
  bool may_be_crowded = false;       ///< so that another port may help
};

/// The end of one of so many shares of the time that is left.
Instant share_of(Instant due, int shares) {
  const auto now = clock_now();
  return now + (due - now) / shares;
}

asio::awaitable<Dialled> dial_place(asio::io_context& io, Place place,
                                    std::shared_ptr<const rendezvous::TlsContext> tls,
                                    ReservedPorts::Share port) {
  Pauses pauses;
  Dialled dialled;
  for (;;) {
    auto opened = co_await connect_from(io, place.to, place.connected, port);
    dialled.failed = opened.failed;
    if (!opened.stream) co_return std::move(dialled);
    auto& stream = opened.stream;
    const StreamDeadline deadline{io.get_executor(), *stream, place.due};
    if (const Io done = co_await stream->shake_hands(tls); done == Io::done) {
      dialled.stream = std::move(stream);
      co_return std::move(dialled);
    }
    const auto pause = pauses.next(stream->tls().fault());
    if (deadline.is_late() || !pause || clock_now() + *pause >= place.due) {
      dialled.may_be_crowded = deadline.is_late() || stream->tls().fault() == StreamFault::busy ||
                               is_silent(stream->tls().fault());
      dialled.refused =
          handshake_error(place.at, *stream, tls->secret(), deadline.is_late(), place.limit);
      co_return std::move(dialled);
    }
    asio::steady_timer timer{io, *pause};
    co_await timer.async_wait(asio::as_tuple(asio::use_awaitable));
  }
}

/// Root's connections: a quarter of the time from any port, and then, where the door there may be
/// crowded by another user of this host, from one that is root's alone; where no connection comes
/// about from that (a network may drop it) from any port again. At a door that was crowded just now
/// that port comes first. Where there is no such port to be had, all of the time is for one try.
asio::awaitable<Dialled> dial_place_as_root(PeerDials& dials, Place place,
                                            std::shared_ptr<const rendezvous::TlsContext> tls,
                                            RequestKind kind) {
  if (!dials.ports.has_free(kind)) co_return co_await dial_place(dials.io, place, tls, nullptr);
  std::optional<PeerError> refused;
  if (!dials.ports.is_crowded(place.at)) {
    Place begin = place;
    begin.due = share_of(place.due, 4);
    auto first = co_await dial_place(dials.io, begin, tls, nullptr);
    if (!first.refused || !first.may_be_crowded) co_return std::move(first);
    refused = std::move(first.refused);
    place.connected = place.due;
  }
  if (auto port = dials.ports.take(kind)) {
    Place reserved = place;
    reserved.connected = std::min(place.connected, share_of(place.due, 2));
    auto second = co_await dial_place(dials.io, reserved, tls, std::move(port));
    if (second.stream && refused) dials.ports.note_crowded(place.at);
    if (second.stream || second.refused) co_return std::move(second);
  }
  auto last = co_await dial_place(dials.io, place, tls, nullptr);
  // That a connection came about before tells more than that none did at last.
  if (!last.stream && !last.refused) last.refused = std::move(refused);
  co_return std::move(last);
}

}  // namespace

asio::awaitable<DialTurns::Turn> DialTurns::wait(std::string address, Instant due) {
  const auto watch = alive_.watch();
  while (queues_[address].running >= kMostDialsAtOnce) {
    const auto turn = std::make_shared<asio::steady_timer>(io_, due);
    queues_[address].waiting.push_back(turn);
    co_await turn->async_wait(asio::as_tuple(asio::use_awaitable));
    if (!watch.is_alive()) co_return nullptr;
    std::erase(queues_[address].waiting, turn);
    if (clock_now() >= due) {
      wake_next(address);  // it may have been this one's turn
      co_return nullptr;
    }
  }
  ++queues_[address].running;
  co_return Turn{this, [this, watch, address](void*) {
                   if (watch.is_alive()) end(address);
                 }};
}

void DialTurns::end(const std::string& address) {
  auto& queue = queues_[address];
  --queue.running;
  wake_next(address);
}

void DialTurns::wake_next(const std::string& address) {
  auto& queue = queues_[address];
  if (queue.waiting.empty()) {
    if (queue.running == 0) queues_.erase(address);
    return;
  }
  if (queue.running >= kMostDialsAtOnce) return;
  queue.waiting.front()->cancel();
  queue.waiting.pop_front();
}

asio::awaitable<PeerDialled> dial_peer(PeerDials& dials, PeerWay way, Millis limit) {
  const Instant due = clock_now() + limit;
  const std::string name = join_host_port(way.to.host, way.to.port);
  // Root waits behind no other user.
  const bool is_root = way.uid == 0;
  const std::string queue = is_root ? name + " for root" : name;
  const auto turn = co_await dials.turns.wait(queue, due);
  if (!turn)
    co_return PeerError{429, kTooManyHere,
                        "too many connections to " + name + " are being made at once: try again"};
  const auto looked_up = co_await dials.lookups.find(way.uid, way.to, due);
  if (looked_up.found.empty())
    co_return PeerError{502, "unknown_host",
                        "the host name " + in_quotes(way.to.host, 255) + " is not known here (" +
                            looked_up.failed + ")" +
                            ": is it spelled right, does this node's DNS know it?"};
  error_code failed;
  std::string at = name;
  auto left = looked_up.found.size();
  for (const auto& endpoint : looked_up.found) {
    const auto numeric = endpoint.address().to_string();
    at = numeric == way.to.host ? name : name + " (" + numeric + ")";
    // Each address gets a share of the remaining time, so that a silent one doesn't use all of it.
    const Instant share = share_of(due, static_cast<int>(left--));
    const Place place{endpoint, at, share, due, limit};
    Dialled dialled;
    if (is_root)
      dialled = co_await dial_place_as_root(dials, place, way.tls, way.kind);
    else
      dialled = co_await dial_place(dials.io, place, way.tls, nullptr);
    if (dialled.stream) co_return std::move(dialled.stream);
    if (dialled.refused) co_return std::move(*dialled.refused);
    failed = dialled.failed;
  }
  co_return connect_error(at, failed, limit);
}

std::span<const std::string_view> peer_error_codes() { return kCodes; }

}  // namespace acc::agent::daemon
