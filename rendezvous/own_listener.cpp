#include "rendezvous/own_listener.hpp"

#include "rendezvous/own_address.hpp"

#include <boost/asio/ip/address.hpp>

#include <cerrno>
#include <utility>

namespace acc::rendezvous {

namespace {

constexpr const char* kAnyAddress = "::";

bool is_numeric(const std::string& host) {
  boost::system::error_code failed;
  boost::asio::ip::make_address(host, failed);
  return !failed;
}

}  // namespace

OwnListener::OwnListener(boost::asio::io_context& io, Options options, Events events)
    : io_{io}, options_{std::move(options)}, events_{std::move(events)} {}

OwnListener::~OwnListener() { stop(); }

void OwnListener::stop() {
  if (listener_) listener_->stop();
}

std::optional<HostPort> OwnListener::at() const {
  return listener_ ? std::optional{listener_->at()} : std::nullopt;
}

HostPort OwnListener::seed_to_look_up() const {
  return {options_.listen.empty() ? options_.seed.host : options_.listen, options_.seed.port};
}

Result<void> OwnListener::open(const std::string& address, std::uint16_t port) {
  ListenOptions listen;
  listen.at = {address, port};
  listen.is_dual_stack = address == kAnyAddress;
  listen.tls = options_.tls;
  listen.is_insecure = options_.is_insecure;
  listen.admission = options_.admission;
  listen.channel.heartbeat_timeout = options_.heartbeat_timeout;
  auto opened = Listener::open(io_, std::move(listen));
  if (!opened) return opened.error();
  listener_ = std::move(*opened);
  listener_->start(events_.on_peer, [this](const TurnedAway& who) { turned_away(who); });
  return {};
}

void OwnListener::turned_away(const TurnedAway& who) {
  const std::string times = who.times > 1 ? " (" + std::to_string(who.times) + " times)" : "";
  std::string text = "turned away a connection from " + who.source + ": " + who.what + times;
  if (options_.tls && who.what.starts_with("authentication")) {
    const Secret& secret = options_.tls->secret();
    text += ": this side uses " + secret.path + ", key id " + secret.keys.front().id;
  }
  events_.tell(std::move(text), true);
}

Result<void> OwnListener::open_seed(const std::string& address) {
  const auto& seed = options_.seed;
  const bool is_hidden = options_.listen.empty() && is_name_on_loopback(seed.host, address);
  if (!is_hidden) return open(address, seed.port);
  auto opened = open(kAnyAddress, seed.port);
  if (opened) {
    events_.tell(seed.host + " is " + address +
                     " on this machine (/etc/hosts?), which others can't reach: "
                     "listening on all its addresses",
                 false);
  }
  return opened;
}

Result<void> OwnListener::serve_seed(const std::vector<std::string>& addresses) {
  const auto& seed = options_.seed;
  Result<void> opened = Error{Errc::not_found, "no address"};
  for (const auto& address : addresses) {
    opened = open_seed(address);
    if (opened || !is_no_own_address(opened.error())) break;
  }
  const bool is_elsewhere = !opened && (addresses.empty() || is_no_own_address(opened.error()));
  if (is_elsewhere) opened = open(kAnyAddress, seed.port);
  if (is_elsewhere && opened) {
    is_seed_elsewhere_ = true;
    events_.tell("this node is to be the first, but " + seed.host +
                     " is no address of this machine: is its --node_rank right? (The name of a "
                     "service or an address behind a NAT is fine.)",
                 true);
  }
  return opened;
}

bool OwnListener::serve_seed_if_here(const std::vector<std::string>& addresses) {
  for (const auto& address : addresses) {
    if (open_seed(address)) return true;
  }
  return false;
}

void OwnListener::open_standby(const std::string& own_address) {
  if (listener_) return;
  const bool says_where = is_numeric(options_.listen);  // for a name, the link knows the address
  const std::string address = says_where            ? options_.listen
                              : own_address.empty() ? kAnyAddress
                                                    : own_address;
  if (open(address, options_.seed.port)) return;
  const auto opened = open(address, 0);
  if (!opened) {
    events_.tell("this node can't take over if the coordinator is lost: " + opened.error().what,
                 true);
  }
}

Result<void> OwnListener::open_for_all(const std::string& own_address, std::uint16_t port) {
  auto opened = open(options_.listen.empty() ? own_address : options_.listen, port);
  // An external name of this host (NAT): all interfaces must be used.
  const bool is_elsewhere =
      !opened && options_.listen.empty() && opened.error().errnum != EADDRINUSE;
  if (is_elsewhere) opened = open(kAnyAddress, port);
  return opened;
}

}  // namespace acc::rendezvous
