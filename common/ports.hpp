#pragma once

#include <cstdint>

namespace acc {

/// True when a listener could be bound to the port on all interfaces right now. Probed by binding,
/// without SO_REUSEPORT tricks; a port in TIME_WAIT counts as free, as rank 0's server sets
/// SO_REUSEADDR.
[[nodiscard]] bool port_is_free(std::uint16_t port);

/// A TCP port that was free a moment ago; 0 if the system has none.
[[nodiscard]] std::uint16_t pick_free_port();

}  // namespace acc
