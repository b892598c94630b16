#pragma once

#include <acc/call.hpp>
#include <acc/error.hpp>
#include <algorithm>
#include <chrono>
#include <string>
#include <string_view>

namespace acc::runtime {

/// Longer than any run, and short enough to be added to any time point.
inline constexpr Millis kLongestTimeout = std::chrono::hours{24 * 365 * 100};

/// A time-out from the user, limited to kLongestTimeout. A negative one is usually what is left of
/// a deadline that has passed, so it must not become "for ever" (0) or wrap around.
/// @param name  for the message: "timeout"
/// @throws Error invalid_argument: negative
[[nodiscard]] inline Millis checked_timeout(Millis given, std::string_view name) {
  if (given < Millis{0})
    throw Error{ErrorCode::invalid_argument,
                std::string{name} + " is negative: " + std::to_string(given.count()) + " ms"};
  return std::min(given, kLongestTimeout);
}

}  // namespace acc::runtime
