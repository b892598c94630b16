#pragma once

#include "common/unique_fd.hpp"

#include <cstdint>
#include <string>
#include <string_view>

namespace acc {

/// True if a listener could be bound to the port on all interfaces now, and no other job on this
/// host has reserved it. Probed by binding, so that any number of programs may ask at a time; a
/// port in TIME_WAIT counts as free, as rank 0's store sets SO_REUSEADDR.
[[nodiscard]] bool port_is_free(std::uint16_t port);

/// A TCP port that was free just now; 0 if the system has none.
[[nodiscard]] std::uint16_t pick_free_port();

/// Announces to other jobs on this host that the port will be used: seconds pass between our probe
/// and a Python worker's listen(). Held as long as the descriptor; a crash leaves nothing behind.
/// Invalid, with errno EADDRINUSE, if another job has reserved the port.
[[nodiscard]] UniqueFd reserve_port(std::uint16_t port);

/// "user 1001 (alice)", if another user than ours listens on the port or has reserved it, as far as
/// the kernel tells; else empty.
[[nodiscard]] std::string foreign_port_holder(std::uint16_t port);

/// "is already in use by user 1001 (alice)", or without the last words; "needs root's rights, as
/// all below 1024", or another reason, of a port that we may not use at all.
[[nodiscard]] std::string why_port_taken(std::uint16_t port);

/// The same with "port 29500" before it.
[[nodiscard]] std::string port_in_use(std::uint16_t port);

/// As reserve_port, for any name in this network namespace, at most 80 bytes of it.
[[nodiscard]] UniqueFd reserve_name(std::string_view name);

}  // namespace acc
