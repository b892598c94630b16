#include "agent/daemon/own_address.hpp"

#include <ifaddrs.h>
#include <netinet/in.h>

#include <algorithm>
#include <cstring>

namespace acc::agent::daemon {

namespace ip = boost::asio::ip;

namespace {

bool has_address(const sockaddr& one, const ip::address& wanted) {
  if (one.sa_family == AF_INET && wanted.is_v4()) {
    sockaddr_in v4{};
    std::memcpy(&v4, &one, sizeof v4);
    return ntohl(v4.sin_addr.s_addr) == wanted.to_v4().to_uint();
  }
  if (one.sa_family == AF_INET6 && wanted.is_v6()) {
    sockaddr_in6 v6{};
    std::memcpy(&v6, &one, sizeof v6);
    const auto bytes = wanted.to_v6().to_bytes();
    return std::ranges::equal(bytes, v6.sin6_addr.s6_addr);
  }
  return false;
}

}  // namespace

bool is_own_address(const ip::address& address) {
  if (address.is_loopback()) return true;
  if (address.is_v6() && address.to_v6().is_v4_mapped())
    return is_own_address(ip::make_address_v4(ip::v4_mapped, address.to_v6()));
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) return false;
  bool is_own = false;
  for (const auto* one = list; one != nullptr && !is_own; one = one->ifa_next)
    is_own = one->ifa_addr != nullptr && has_address(*one->ifa_addr, address);
  ::freeifaddrs(list);
  return is_own;
}

}  // namespace acc::agent::daemon
