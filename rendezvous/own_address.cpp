#include "rendezvous/own_address.hpp"

#include "common/text.hpp"

#include <boost/asio/ip/udp.hpp>

#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <string_view>

namespace acc::rendezvous {

namespace ip = boost::asio::ip;

namespace {

ip::address address_of(const sockaddr& one) {
  if (one.sa_family == AF_INET) {
    sockaddr_in v4{};
    std::memcpy(&v4, &one, sizeof v4);
    return ip::address_v4{ntohl(v4.sin_addr.s_addr)};
  }
  if (one.sa_family == AF_INET6) {
    sockaddr_in6 v6{};
    std::memcpy(&v6, &one, sizeof v6);
    ip::address_v6::bytes_type bytes;
    std::memcpy(bytes.data(), &v6.sin6_addr, bytes.size());
    return ip::address_v6{bytes};
  }
  return {};
}

// A link-local address means nothing on another host without its scope there.
bool is_routable(const ip::address& address) {
  if (address.is_unspecified() || address.is_loopback()) return false;
  if (address.is_v6()) return !address.to_v6().is_link_local();
  constexpr ip::address_v4::uint_type kLinkLocal = 0xa9fe;  // 169.254/16
  return address.to_v4().to_uint() >> 16 != kLinkLocal;
}

std::string address_of_an_interface() {
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) return {};
  constexpr unsigned kUp = IFF_UP | IFF_RUNNING;
  ip::address best;
  for (const auto* at = list; at != nullptr; at = at->ifa_next) {
    if (at->ifa_addr == nullptr || (at->ifa_flags & kUp) != kUp) continue;
    const auto one = address_of(*at->ifa_addr);
    if (!is_routable(one)) continue;
    if (best.is_unspecified() || (best.is_v6() && one.is_v4())) best = one;
  }
  ::freeifaddrs(list);
  return best.is_unspecified() ? std::string{} : best.to_string();
}

}  // namespace

std::string own_address_towards(boost::asio::io_context& io, const ip::tcp::endpoint& other) {
  ip::udp::socket socket{io};
  boost::system::error_code error;
  const ip::udp::endpoint to{other.address(), other.port()};
  if (socket.open(to.protocol(), error) || socket.connect(to, error)) return {};
  const auto own = socket.local_endpoint(error);
  return error ? std::string{} : own.address().to_string();
}

std::string routable_own_address(boost::asio::io_context& io) {
  constexpr std::uint16_t kAnyPort = 9;
  for (const auto* outside : {"192.0.2.1", "2001:db8::1"}) {  // for documentation: no host has them
    const auto own = own_address_towards(io, {ip::make_address(outside), kAnyPort});
    boost::system::error_code failed;
    if (is_routable(ip::make_address(own, failed))) return own;
  }
  return address_of_an_interface();
}

bool is_loopback_address(const std::string& text) {
  boost::system::error_code failed;
  return ip::make_address(text, failed).is_loopback();
}

// Meant as loopback: RFC 6761, and what distributions have in /etc/hosts.
static bool names_loopback(const std::string& host) {
  std::string name = to_lower(host);
  if (name.ends_with('.')) name.pop_back();
  const std::string first = name.substr(0, name.find('.'));
  const bool is_local = first.size() == name.size() || name.starts_with(first + ".localdomain");
  static constexpr std::array<std::string_view, 5> kNames{"localhost", "localhost4", "localhost6",
                                                          "ip6-localhost", "ip6-loopback"};
  return name.ends_with(".localhost") ||
         (is_local && std::ranges::find(kNames, first) != kNames.end());
}

bool is_name_on_loopback(const std::string& host, const std::string& address) {
  boost::system::error_code is_name;
  ip::make_address(host, is_name);
  return is_name && !names_loopback(host) && is_loopback_address(address);
}

bool is_no_own_address(const Error& failed) {
  return failed.errnum == EADDRNOTAVAIL || failed.errnum == EAFNOSUPPORT;
}

}  // namespace acc::rendezvous
