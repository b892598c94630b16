#pragma once

#include <cstdint>

namespace acc::runtime {

/// Counts the forks that led to this process: differs between parent and child. Costs one load.
[[nodiscard]] std::uint64_t fork_generation() noexcept;

}  // namespace acc::runtime
