#pragma once

#include "runtime/bootstrap/launch_environment.hpp"

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace acc::runtime {

/// Where the ranks of a job find the store that rank 0 serves.
struct TcpStorePlace {
  std::string host;  ///< name or number; empty: `name` is abstract
  /// Rank 0 takes the first free one, the others try each. A port chosen by the user is the only
  /// one: a second job with the same port is refused instead of moved.
  std::vector<std::uint16_t> ports;
  std::string name;
  bool local = false;  ///< all ranks are on this machine, according to the launcher or the address
  std::string job;     ///< sent to the server, which refuses ranks of another job
  int rank = 0;
  int size = 1;
};

/// "localhost" in any case: loopback by RFC 6761, whatever a resolver says.
[[nodiscard]] bool is_localhost(std::string_view host);

/// Where the ranks of a job meet: the same on every rank, and different for concurrent jobs as far
/// as their environments differ.
/// @throws Error invalid_argument: no address is known; names the variables to set.
[[nodiscard]] TcpStorePlace place_of(const LaunchEnvironment& launch);

/// For messages: "@name", "host:29500", "host:21007 and 7 other ports".
[[nodiscard]] std::string describe(const TcpStorePlace& place);

}  // namespace acc::runtime
