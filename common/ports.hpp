#pragma once

#include "common/unique_fd.hpp"

#include <cstdint>
#include <string_view>

namespace acc {

/// True when a listener could be bound to the port on all interfaces right now, and no other job on
/// this host has reserved it. Probed by binding; a port in TIME_WAIT counts as free, as rank 0's
/// store sets SO_REUSEADDR.
[[nodiscard]] bool port_is_free(std::uint16_t port);

/// A TCP port that was free a moment ago; 0 if the system has none.
[[nodiscard]] std::uint16_t pick_free_port();

/// Tells other jobs on this host that the port will be used: between our probe and the moment in
/// which a Python worker listens there are seconds. Held as long as the descriptor; nothing is left
/// by a crash. Invalid if another job has reserved the port.
[[nodiscard]] UniqueFd reserve_port(std::uint16_t port);

/// The same for any name in this network namespace, at most 80 bytes of it.
[[nodiscard]] UniqueFd reserve_name(std::string_view name);

}  // namespace acc
