#pragma once

#include <cstdint>

namespace acc::runtime {

/// Which process of a line of forks is this? Another number after every fork, in the child. One
/// load: every call may ask.
[[nodiscard]] std::uint64_t fork_generation() noexcept;

}  // namespace acc::runtime
