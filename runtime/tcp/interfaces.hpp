#pragma once

#include "runtime/bootstrap/contract.hpp"
#include "runtime/bootstrap/sockets.hpp"

#include <string>
#include <string_view>
#include <vector>

namespace acc::runtime {

struct Interface {
  std::string name;
  SocketAddress address;
};
/// Those that are up, in the kernel's order; an interface with two addresses is there twice.
[[nodiscard]] std::vector<Interface> interfaces();

/// Which interfaces may be used: "eth,ib" by prefix, "=eth0,eth1" by name, "^docker,lo" all others.
/// As NCCL_SOCKET_IFNAME; GLOO_SOCKET_IFNAME's plain names mean the same here.
class InterfaceFilter {
 public:
  explicit InterfaceFilter(std::string_view text);
  [[nodiscard]] bool lets(std::string_view name) const;

 private:
  std::vector<std::string> names_;
  bool exact_ = false;
  bool excludes_ = false;
};

/// The address under which the ranks of other hosts reach this process: of the interfaces that
/// ACC_SOCKET_IFNAME (or NCCL_, GLOO_SOCKET_IFNAME) lets, else the one from which the kernel would
/// speak to the master. (Not what the own host name means: that is 127.0.1.1 on Debian.)
/// @throws Error system: what was asked for, and which interfaces there are.
[[nodiscard]] Interface choose_interface(const Lookup& lookup, const std::string& master_address,
                                         Deadline deadline);

}  // namespace acc::runtime
