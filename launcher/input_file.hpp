#pragma once

#include "common/error.hpp"

#include <chrono>
#include <cstddef>
#include <string>

namespace acc::launcher {

inline constexpr std::chrono::seconds kInputPatience{30};

/// The text of a file that may be a pipe, as `<(…)` of a shell is one. Waits for the end of it, for
/// at most `patience` after each byte, and at a terminal as long as it takes. A signal to
/// stop ends this process meanwhile, also where it is blocked, as before a job begins.
/// @param most_bytes  what is longer is cut off somewhere behind
/// @return an error that names the path and what was wrong
[[nodiscard]] Result<std::string> read_input(const std::string& path, std::size_t most_bytes,
                                             std::chrono::milliseconds patience = kInputPatience);

}  // namespace acc::launcher
