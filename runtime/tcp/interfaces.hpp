#pragma once

#include "runtime/bootstrap/launch_environment.hpp"
#include "runtime/net/sockets.hpp"

#include <string>
#include <string_view>
#include <vector>

namespace acc::runtime {

struct Interface {
  std::string name;
  SocketAddress address;
};
/// The interfaces that are up, in the kernel's order; one with two addresses is listed twice.
[[nodiscard]] std::vector<Interface> interfaces();

/// Which interfaces may be used: "eth,ib" by prefix, "=eth0,eth1" by name, "^docker,lo" excludes.
/// As NCCL_SOCKET_IFNAME; GLOO_SOCKET_IFNAME's plain names mean the same here.
class InterfaceFilter {
 public:
  explicit InterfaceFilter(std::string_view text);
  [[nodiscard]] bool allows(std::string_view name) const;

 private:
  std::vector<std::string> names_;
  bool exact_ = false;
  bool excludes_ = false;
};

/// The address under which the ranks of other hosts reach this process: of the interfaces allowed
/// by ACC_SOCKET_IFNAME (or NCCL_, GLOO_SOCKET_IFNAME), else the one from which the kernel reaches
/// the master. (Not the address of the host's name, which is 127.0.1.1 on Debian.)
/// @throws Error system: names what was requested and the interfaces found.
[[nodiscard]] Interface choose_interface(const Lookup& lookup, const std::string& master_address,
                                         Deadline deadline);

}  // namespace acc::runtime
