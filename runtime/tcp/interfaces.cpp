#include "runtime/tcp/interfaces.hpp"

#include "common/text.hpp"

#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>

#include <acc/error.hpp>
#include <algorithm>
#include <array>

namespace acc::runtime {

std::vector<Interface> interfaces() {
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) return {};
  std::vector<Interface> found;
  for (const auto* at = list; at != nullptr; at = at->ifa_next) {
    if (at->ifa_addr == nullptr || (at->ifa_flags & IFF_UP) == 0) continue;
    const int family = at->ifa_addr->sa_family;
    if (family == AF_INET) found.push_back({at->ifa_name, {at->ifa_addr, sizeof(sockaddr_in)}});
    if (family != AF_INET6) continue;
    const auto& v6 = reinterpret_cast<const sockaddr_in6&>(*at->ifa_addr);
    // A link-local address means nothing on another host without its scope.
    if (IN6_IS_ADDR_LINKLOCAL(&v6.sin6_addr)) continue;
    found.push_back({at->ifa_name, {at->ifa_addr, sizeof(sockaddr_in6)}});
  }
  ::freeifaddrs(list);
  return found;
}

InterfaceFilter::InterfaceFilter(std::string_view text) {
  text = trim(text);
  if (text.starts_with('^')) {
    excludes_ = true;
    text.remove_prefix(1);
  }
  if (text.starts_with('=')) {
    exact_ = true;
    text.remove_prefix(1);
  }
  for (const auto& name : split(text, ',')) {
    if (!trim(name).empty()) names_.emplace_back(trim(name));
  }
}

bool InterfaceFilter::allows(std::string_view name) const {
  const bool named = std::any_of(names_.begin(), names_.end(), [&](const std::string& one) {
    return exact_ ? name == one : name.starts_with(one);
  });
  return named != excludes_;
}

namespace {

std::string table(const std::vector<Interface>& all) {
  std::string text;
  for (const auto& one : all)
    text += (text.empty() ? "" : ", ") + one.name + " " + one.address.host();
  return text.empty() ? "none" : text;
}

Interface named_by(const InterfaceFilter& filter, const std::string& question) {
  const auto all = interfaces();
  const Interface* best = nullptr;
  for (const auto& one : all) {
    if (!filter.allows(one.name)) continue;
    const auto worth = [](const Interface& i) {  // loopback last, IPv4 first
      return (i.address.is_loopback() ? 0 : 2) + (i.address.family() == AF_INET ? 1 : 0);
    };
    if (best == nullptr || worth(one) > worth(*best)) best = &one;
  }
  if (best != nullptr) return *best;
  throw Error{ErrorCode::system,
              question + " lets no interface of this host; there are: " + table(all)};
}

/// The local address from which the kernel would reach `target`: a UDP connect sends nothing.
Result<SocketAddress> source_towards(SocketAddress target) {
  target.set_port(9);  // any
  UniqueFd fd{::socket(target.family(), SOCK_DGRAM | SOCK_CLOEXEC, 0)};
  if (!fd || ::connect(fd.get(), target.get(), target.size()) != 0)
    return system_error(errno, "find the way to " + target.host());
  auto source = local_address(fd.get());
  source.set_port(0);
  return source;
}

}  // namespace

Interface choose_interface(const Lookup& lookup, const std::string& master_address,
                           Deadline deadline) {
  for (const auto name : {"ACC_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME"}) {
    const auto value = lookup(name).value_or("");
    if (!value.empty())
      return named_by(InterfaceFilter{value}, std::string{name} + "=" + printable(value, 80));
  }
  // The master's address is unknown: any interface that isn't loopback or a container's bridge.
  if (master_address.empty())
    return named_by(InterfaceFilter{"^lo,docker"}, "the default (^lo,docker)");
  const auto master = resolve(master_address, 9, deadline);
  if (!master || master->empty())
    throw Error{ErrorCode::system, master ? "MASTER_ADDR has no address" : master.error().what};
  const auto source = source_towards(master->front());
  if (!source) throw Error{ErrorCode::system, source.error().what};
  for (const auto& one : interfaces())
    if (one.address.host() == source->host()) return {one.name, *source};
  return {"?", *source};
}

}  // namespace acc::runtime
