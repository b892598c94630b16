#pragma once

#include "launcher/ctl/top/cells.hpp"

#include <optional>
#include <vector>

namespace acc::ctl::top {

/// What a terminal shows: as many lines as it has, none wider than it.
struct Frame {
  std::vector<Line> lines;
  struct Cursor {
    std::size_t row = 0;
    std::size_t column = 0;
  };
  std::optional<Cursor> cursor;  ///< nothing: hidden
};

}  // namespace acc::ctl::top
