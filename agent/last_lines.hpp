#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace acc::agent {

/// Of a failed worker's output, to people.
inline constexpr std::size_t kShownLines = 20;

/// The last `count` lines of a tail, as safe_text() of common/plain_text.hpp makes them (of a
/// progress bar the last state). Of one that is longer than `width` the first and the last half of
/// so many bytes.
[[nodiscard]] std::vector<std::string> last_lines(std::string_view tail, std::size_t count,
                                                  std::size_t width = 400);

}  // namespace acc::agent
