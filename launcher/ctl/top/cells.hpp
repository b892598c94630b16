#pragma once

#include "launcher/ctl/text_width.hpp"

#include <cstddef>
#include <string>
#include <vector>

/// Text as the cells of a terminal, in spans of a style (pure).
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

// Of text; below of spans.
using ctl::ascii_of;
using ctl::cut;
using ctl::fitted;
using ctl::shortened;
using ctl::width_of;
[[nodiscard]] std::size_t width_of(const Line& line);
[[nodiscard]] Line cut(const Line& line, std::size_t from, std::size_t columns);

}  // namespace acc::ctl::top
