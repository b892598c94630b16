#include "launcher/ctl/text_width.hpp"

#include <locale.h>
#include <wchar.h>

#include <algorithm>

namespace acc::ctl {

namespace {

/// A character of UTF-8 text, and the columns that it takes.
struct Cell {
  std::string_view bytes;
  std::size_t width = 1;
};

/// wcwidth() asks the thread's locale. The C library has C.UTF-8 since 2.35, also without files.
class Utf8Locale {
 public:
  Utf8Locale() : locale_{::newlocale(LC_CTYPE_MASK, "C.UTF-8", nullptr)} {}
  ~Utf8Locale() {
    if (locale_ != nullptr) ::freelocale(locale_);
  }
  Utf8Locale(const Utf8Locale&) = delete;
  Utf8Locale& operator=(const Utf8Locale&) = delete;

  [[nodiscard]] std::size_t width(char32_t character) const {
    if (locale_ == nullptr) return 1;
    const locale_t before = ::uselocale(locale_);
    const int width = ::wcwidth(static_cast<wchar_t>(character));
    ::uselocale(before);
    return static_cast<std::size_t>(std::max(width, 0));
  }

 private:
  locale_t locale_;
};

Cell first_cell(std::string_view text) {
  const auto first = static_cast<unsigned char>(text[0]);
  if (first < 0x80) return {text.substr(0, 1), 1};
  const std::size_t length = std::min<std::size_t>(text.size(), first >= 0xF0   ? 4
                                                                : first >= 0xE0 ? 3
                                                                                : 2);
  char32_t character = first & (0xFFU >> (length + 1));
  for (std::size_t i = 1; i < length; ++i)
    character = (character << 6U) | (static_cast<unsigned char>(text[i]) & 0x3FU);
  static const Utf8Locale locale;
  return {text.substr(0, length), locale.width(character)};
}

}  // namespace

std::size_t width_of(std::string_view text) {
  std::size_t width = 0;
  while (!text.empty()) {
    const auto cell = first_cell(text);
    width += cell.width;
    text.remove_prefix(cell.bytes.size());
  }
  return width;
}

std::string cut(std::string_view text, std::size_t from, std::size_t columns) {
  std::string out;
  if (columns == 0) return out;
  const auto to = from + columns;
  std::size_t at = 0;
  while (!text.empty() && at <= to) {
    const auto cell = first_cell(text);
    text.remove_prefix(cell.bytes.size());
    const auto end = at + cell.width;
    const bool is_inside = at >= from && end <= to;
    if (is_inside && (cell.width > 0 || !out.empty())) {
      out += cell.bytes;
    } else if (!is_inside && end > from && at < to) {
      out += ' ';
    }
    at = end;
  }
  return out;
}

std::string fitted(std::string_view text, std::size_t columns, bool is_right) {
  auto out = cut(text, 0, columns);
  const std::string fill(columns - std::min(columns, width_of(out)), ' ');
  return is_right ? fill + out : out + fill;
}

std::string shortened(std::string_view text, std::size_t columns) {
  constexpr std::string_view kMark = "..";
  if (width_of(text) <= columns) return std::string{text};
  if (columns <= kMark.size()) return cut(text, 0, columns);
  return cut(text, 0, columns - kMark.size()) + std::string{kMark};
}

std::string ascii_of(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const auto cell = first_cell(text);
    if (cell.bytes.size() == 1) {
      out += cell.bytes;
    } else {
      out.append(cell.width, '?');
    }
    text.remove_prefix(cell.bytes.size());
  }
  return out;
}

}  // namespace acc::ctl
