#pragma once

#include <cstdint>
#include <string>

namespace acc::rendezvous {

/// The process that listens on a TCP port of this network namespace, for a message: "python3 (pid
/// 4711)", or, if we may not see its descriptors, its user: "user 1001 (alice)". Empty if there is
/// none.
[[nodiscard]] std::string describe_port_holder(std::uint16_t port);

}  // namespace acc::rendezvous
