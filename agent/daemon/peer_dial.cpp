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

constexpr std::array<std::string_view, 9> kCodes{
    "unknown_host", "no_daemon", "unreachable", "no_answer",    "authentication_failed",
    "not_an_agent", "busy",      "wrong_node",  "unproven_node"};
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
      return {504, "no_answer",
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
    return {504, "no_answer",
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

/// A port below 1024 that root alone may use: the daemon there tells by it that what connects isn't
/// another user of this host. False: there is none, or it isn't permitted.
bool bind_reserved_port(int fd, bool is_v6) {
  constexpr int kFirst = 665;  // fewer services have those above, as with NFS
  constexpr int kCount = 1024 - kFirst;
  constexpr int kTries = 8;
  const int on = 1;
  ::setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  for (int i = 0; i < kTries; ++i) {
    const auto port = static_cast<std::uint16_t>(kFirst + random_fraction() * kCount);
    const asio::ip::tcp::endpoint from{is_v6 ? asio::ip::tcp::v6() : asio::ip::tcp::v4(), port};
    if (::bind(fd, from.data(), static_cast<socklen_t>(from.size())) == 0) return true;
    if (errno != EADDRINUSE) return false;
  }
  return false;
}

/// @param port  a share of those that are reserved; null: from any port
asio::awaitable<Opened> connect_once(asio::io_context& io, asio::ip::tcp::endpoint to, Instant due,
                                     DialTurns::Turn port) {
  Opened opened;
  UniqueFd fd{::socket(to.protocol().family(), SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0)};
  if (!fd) {
    opened.failed = {errno, boost::system::system_category()};
    co_return std::move(opened);
  }
  if (port && !bind_reserved_port(fd.get(), to.address().is_v6())) {
    opened.failed = {EADDRNOTAVAIL, boost::system::system_category()};
    co_return std::move(opened);
  }
  auto stream =
      std::make_unique<PeerStream>(io.get_executor(), std::move(fd), to.address().is_v6());
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

asio::awaitable<Dialled> dial_place(asio::io_context& io, Place place,
                                    std::shared_ptr<const rendezvous::TlsContext> tls,
                                    DialTurns::Turn port) {
  Pauses pauses;
  Dialled dialled;
  for (;;) {
    auto opened = co_await connect_once(io, place.to, place.connected, port);
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
/// crowded by another user of this host, from one that is root's alone. At a door that was so just
/// now from that one at once.
asio::awaitable<Dialled> dial_place_as_root(asio::io_context& io, DialTurns& turns, Place place,
                                            std::shared_ptr<const rendezvous::TlsContext> tls) {
  Dialled first;
  if (!turns.is_crowded(place.at)) {
    Place begin = place;
    const auto now = clock_now();
    begin.due = now + (place.due - now) / 4;
    first = co_await dial_place(io, begin, tls, nullptr);
    if (!first.refused || !first.may_be_crowded) co_return std::move(first);
    place.connected = place.due;
  }
  auto port = turns.take_reserved_port();
  const bool is_reserved = port != nullptr;
  auto again = co_await dial_place(io, place, tls, std::move(port));
  if (is_reserved && again.stream) turns.note_crowded(place.at);
  // A network may drop what comes from such a port: the first try tells more.
  if (!again.stream && !again.refused && first.refused) co_return std::move(first);
  co_return std::move(again);
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

void DialTurns::note_crowded(const std::string& address) {
  constexpr std::chrono::seconds kLasts{30};
  const auto now = clock_now();
  std::erase_if(crowded_, [&](const auto& one) { return one.second <= now; });
  crowded_[address] = now + kLasts;
}

bool DialTurns::is_crowded(const std::string& address) const {
  const auto found = crowded_.find(address);
  return found != crowded_.end() && clock_now() < found->second;
}

DialTurns::Turn DialTurns::take_reserved_port() {
  constexpr int kMost = 16;  // of those that NFS and other programs of root's need, too
  if (reserved_ports_ >= kMost) return nullptr;
  ++reserved_ports_;
  return Turn{this, [this, watch = alive_.watch()](void*) {
                if (watch.is_alive()) --reserved_ports_;
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

asio::awaitable<PeerDialled> dial_peer(asio::io_context& io, HostLookups& lookups, DialTurns& turns,
                                       uid_t uid, NodeAddress to,
                                       std::shared_ptr<const rendezvous::TlsContext> tls,
                                       Millis limit) {
  const Instant due = clock_now() + limit;
  const std::string name = join_host_port(to.host, to.port);
  // Root waits behind no other user.
  const bool is_root = uid == 0;
  const std::string queue = is_root ? name + " for root" : name;
  const auto turn = co_await turns.wait(queue, due);
  if (!turn)
    co_return PeerError{429, kTooManyHere,
                        "too many connections to " + name + " are being made at once: try again"};
  const auto looked_up = co_await lookups.find(uid, to, due);
  if (looked_up.found.empty())
    co_return PeerError{502, "unknown_host",
                        "the host name " + in_quotes(to.host, 255) + " is not known here (" +
                            looked_up.failed + ")" +
                            ": is it spelled right, does this node's DNS know it?"};
  error_code failed;
  std::string at = name;
  auto left = looked_up.found.size();
  for (const auto& endpoint : looked_up.found) {
    const auto numeric = endpoint.address().to_string();
    at = numeric == to.host ? name : name + " (" + numeric + ")";
    // Each address gets a share of the remaining time, so that a silent one doesn't use all of it.
    const Instant share = clock_now() + (due - clock_now()) / static_cast<int>(left--);
    const Place place{endpoint, at, share, due, limit};
    Dialled dialled;
    if (is_root)
      dialled = co_await dial_place_as_root(io, turns, place, tls);
    else
      dialled = co_await dial_place(io, place, tls, nullptr);
    if (dialled.stream) co_return std::move(dialled.stream);
    if (dialled.refused) co_return std::move(*dialled.refused);
    failed = dialled.failed;
  }
  co_return connect_error(at, failed, limit);
}

std::span<const std::string_view> peer_error_codes() { return kCodes; }

}  // namespace acc::agent::daemon
