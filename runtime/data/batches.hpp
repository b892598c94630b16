#pragma once

#include <cstddef>

namespace acc::runtime {

/// Batches of `each` (above 0) among `samples`.
[[nodiscard]] constexpr std::size_t batches_of(std::size_t samples, std::size_t each,
                                               bool drop_last) noexcept {
  return samples / each + (samples % each != 0 && !drop_last ? 1 : 0);
}

}  // namespace acc::runtime
