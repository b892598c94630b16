#include "launcher/ctl/top/cells.hpp"

#include <algorithm>

namespace acc::ctl::top {

std::size_t width_of(const Line& line) {
  std::size_t width = 0;
  for (const auto& span : line) width += width_of(span.text);
  return width;
}

Line cut(const Line& line, std::size_t from, std::size_t columns) {
  Line out;
  std::size_t at = 0;
  for (const auto& span : line) {
    const auto width = width_of(span.text);
    const auto begin = std::max(at, from);
    const auto end = std::min(at + width, from + columns);
    if (begin < end) out.push_back({cut(span.text, begin - at, end - begin), span.style});
    at += width;
  }
  return out;
}

}  // namespace acc::ctl::top
