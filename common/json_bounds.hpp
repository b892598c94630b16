#pragma once

#include <cstddef>
#include <limits>
#include <string_view>

namespace acc {

/// Of JSON from a user's processes or another node.
inline constexpr int kDeepestForeign = 64;
inline constexpr std::size_t kMostForeign = 100'000;

/// More brackets within brackets than `deepest`: what nests deeply is copied, printed and destroyed
/// by recursion. Or more than `most` values: each costs many times its bytes. Asked before it is
/// parsed; says nothing of whether it is JSON.
[[nodiscard]] bool is_json_beyond(std::string_view text, int deepest,
                                  std::size_t most = std::numeric_limits<std::size_t>::max());

}  // namespace acc
