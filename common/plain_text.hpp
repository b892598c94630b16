#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace acc {

/// One line of foreign text as UTF-8 that is safe on any terminal: escape sequences and control
/// characters are dropped, so are characters that turn the direction of text or take no place; tabs
/// become spaces, bytes that aren't UTF-8 '?'. Of a progress bar ('\r') only the last state is left.
/// @param limit  bytes at most; no character is cut
[[nodiscard]] std::string plain_line(std::string_view line, std::size_t limit = std::string::npos);

/// The last line of `text` that has anything to read, as plain_line gives it; empty: none.
[[nodiscard]] std::string last_plain_line(std::string_view text, std::size_t limit);

}  // namespace acc
