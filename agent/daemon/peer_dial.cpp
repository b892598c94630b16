#include "agent/daemon/peer_dial.hpp"

#include "common/endpoint.hpp"
#include "common/text.hpp"
#include "rendezvous/channel.hpp"

#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <utility>

namespace acc::agent::daemon {

namespace asio = boost::asio;
using boost::system::error_code;
using rendezvous::Io;
using rendezvous::StreamFault;

namespace {

constexpr std::array<std::string_view, 6> kCodes{"unknown_host",          "no_daemon",
                                                 "unreachable",           "no_answer",
                                                 "authentication_failed", "not_an_agent"};

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
    case StreamFault::authentication:
    case StreamFault::reset:
    case StreamFault::none:
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

}  // namespace

asio::awaitable<PeerDialled> dial_peer(asio::io_context& io, HostLookups& lookups, NodeAddress to,
                                       std::shared_ptr<const rendezvous::TlsContext> tls,
                                       Millis limit) {
  const Instant due = clock_now() + limit;
  const std::string name = join_host_port(to.host, to.port);
  const auto looked_up = co_await lookups.find(to, due);
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
    UniqueFd fd{
        ::socket(endpoint.protocol().family(), SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0)};
    if (!fd)
      co_return PeerError{503, "unreachable",
                          "connect to " + at + ": " +
                              error_code{errno, boost::system::system_category()}.message()};
    auto stream =
        std::make_unique<PeerStream>(io.get_executor(), std::move(fd), endpoint.address().is_v6());
    {
      const StreamDeadline deadline{io.get_executor(), *stream, share};
      failed = co_await stream->connect(endpoint);
      if (deadline.is_late()) failed = {ETIMEDOUT, boost::system::system_category()};
    }
    // On one host a connection to a free port may connect to itself.
    if (!failed && stream->is_to_itself())
      failed = {ECONNREFUSED, boost::system::system_category()};
    if (failed) continue;
    const StreamDeadline deadline{io.get_executor(), *stream, due};
    const Io io_result = co_await stream->shake_hands(tls);
    if (io_result == Io::done) co_return std::move(stream);
    co_return handshake_error(at, *stream, tls->secret(), deadline.is_late(), limit);
  }
  co_return connect_error(at, failed, limit);
}

std::span<const std::string_view> peer_error_codes() { return kCodes; }

}  // namespace acc::agent::daemon
