#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

/// Text as the cells of a terminal (pure). All text here is plain: plain_line() of
/// common/plain_text.hpp made it so, or it is ours.
namespace acc::ctl::top {

enum class Style {
  plain,
  title,     ///< the job's line
  heading,   ///< of a table
  sorted,    ///< the heading of the column that the table is sorted by
  selected,  ///< the row with the cursor
  good,
  bad,
  warning,
  faint,
  node,   ///< a row of the tree
  key,    ///< "F1" of the last line
  label,  ///< "Help" behind it
  panel,  ///< a menu
  match,  ///< what a search found
};

struct Span {
  std::string text;
  Style style = Style::plain;
  friend bool operator==(const Span&, const Span&) = default;
};
using Line = std::vector<Span>;

/// Columns that the text takes: wide characters take two, combining ones none.
[[nodiscard]] std::size_t width_of(std::string_view text);
[[nodiscard]] std::size_t width_of(const Line& line);
/// The columns [from, from + columns) of the text; half of a wide character becomes a space.
[[nodiscard]] std::string cut(std::string_view text, std::size_t from, std::size_t columns);
[[nodiscard]] Line cut(const Line& line, std::size_t from, std::size_t columns);
/// Exactly `columns` wide: cut, or filled with spaces.
[[nodiscard]] std::string fitted(std::string_view text, std::size_t columns, bool is_right = false);
/// As `cut`, but what is cut off at the end is marked by "..".
[[nodiscard]] std::string shortened(std::string_view text, std::size_t columns);
/// With '?' in place of what isn't ASCII, for a terminal whose locale has no UTF-8.
[[nodiscard]] std::string ascii_of(std::string_view text);

}  // namespace acc::ctl::top
