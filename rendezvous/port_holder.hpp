#pragma once

#include <cstdint>
#include <string>

namespace acc::rendezvous {

/// Who listens on a TCP port of this network namespace, for a message: "python3 (pid 4711)". Empty
/// if nobody does or if it belongs to somebody whose descriptors we may not see.
[[nodiscard]] std::string describe_port_holder(std::uint16_t port);

}  // namespace acc::rendezvous
