#pragma once

#include "common/error.hpp"

#include <chrono>
#include <string>
#include <string_view>

namespace acc {

using Millis = std::chrono::milliseconds;
using Instant = std::chrono::steady_clock::time_point;  ///< only monotonic time decides (P8)

/// For code that uses the system; pure decisions receive the time as an argument.
[[nodiscard]] inline Instant clock_now() { return std::chrono::steady_clock::now(); }

/// "15" and "15s" are seconds; also "0.5", "250ms", "2m", "1h". Negative, empty and non-finite
/// values are refused.
Result<Millis> parse_duration(std::string_view text);

/// For display: "250 ms", "15 s", "1.5 s", "2 min", "1 h 5 min".
std::string describe(Millis d);

}  // namespace acc
