#pragma once

#include <cstddef>
#include <string>
#include <string_view>

/// Text in the columns of a terminal (pure). All text here is UTF-8: printable() of common/text.hpp
/// or plain_line() of common/plain_text.hpp made it so, or it is ours.
namespace acc::ctl {

/// Columns that the text takes: wide characters take two, combining ones none.
[[nodiscard]] std::size_t width_of(std::string_view text);
/// The columns [from, from + columns) of the text; half of a wide character becomes a space.
[[nodiscard]] std::string cut(std::string_view text, std::size_t from, std::size_t columns);
/// Exactly `columns` wide: cut, or filled with spaces.
[[nodiscard]] std::string fitted(std::string_view text, std::size_t columns, bool is_right = false);
/// As `cut`, but what is cut off at the end is marked by "..".
[[nodiscard]] std::string shortened(std::string_view text, std::size_t columns);
/// With '?' in place of what isn't ASCII, for a terminal whose locale has no UTF-8.
[[nodiscard]] std::string ascii_of(std::string_view text);

}  // namespace acc::ctl
