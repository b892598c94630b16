#include "launcher/ctl/text_table.hpp"

#include "common/text.hpp"
#include "launcher/ctl/text_width.hpp"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>

namespace acc::ctl {

namespace {

constexpr std::size_t kGap = 2;
constexpr std::size_t kLeastOfLast = 8;
constexpr std::size_t kWidestCell = 200;

}  // namespace

std::string table_text(const std::vector<std::vector<std::string>>& rows, std::size_t width) {
  std::vector<std::size_t> widths;
  for (const auto& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (std::size_t i = 0; i < row.size(); ++i)
      widths[i] = std::max(widths[i], width_of(printable(row[i], kWidestCell)));
  }
  if (widths.empty()) return {};
  std::size_t before_last = 0;
  for (std::size_t i = 0; i + 1 < widths.size(); ++i) before_last += widths[i] + kGap;
  const std::size_t left = width > before_last ? width - before_last : 0;
  widths.back() = std::min(widths.back(), std::max(left, kLeastOfLast));
  std::string out;
  for (const auto& row : rows) {
    std::string line;
    for (std::size_t i = 0; i < row.size(); ++i) {
      const auto cell = shortened(printable(row[i], kWidestCell), widths[i]);
      line += cell;
      if (i + 1 < row.size()) line.append(widths[i] - width_of(cell) + kGap, ' ');
    }
    line.erase(line.find_last_not_of(' ') + 1);
    out += line + "\n";
  }
  return out;
}

std::string span_words(double seconds) {
  constexpr double kMinute = 60;
  constexpr double kHour = 60 * kMinute;
  constexpr double kDay = 24 * kHour;
  const auto whole = [](double n) { return std::to_string(static_cast<long long>(n)); };
  if (!(seconds > 0)) return "0 s";
  if (seconds > 1e12) return "?";
  if (seconds < kMinute) return whole(seconds) + " s";
  if (seconds < kHour) return whole(seconds / kMinute) + " min";
  if (seconds < 2 * kDay) return whole(seconds / kHour) + " h";
  return whole(seconds / kDay) + " d";
}

std::string size_words(std::uint64_t bytes) {
  constexpr std::array kUnits{"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  auto amount = static_cast<double>(bytes);
  std::size_t unit = 0;
  for (; amount >= 1024 && unit + 1 < kUnits.size(); ++unit) amount /= 1024;
  char text[32];
  std::snprintf(text, sizeof text, unit > 1 && amount < 10 ? "%.1f %s" : "%.0f %s", amount,
                kUnits[unit]);
  return text;
}

std::size_t terminal_width() {
  constexpr std::size_t kUsual = 80;
  winsize size{};
  if (::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0) return kUsual;
  return std::max<std::size_t>(kUsual, size.ws_col);
}

}  // namespace acc::ctl
