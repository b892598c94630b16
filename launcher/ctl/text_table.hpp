#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

/// Tables and amounts for people.
namespace acc::ctl {

/// Columns as wide as their widest cell; the last one is cut to fit `width`, at least a little is
/// left of it. All cells are printed safely: nothing in them can steer a terminal.
[[nodiscard]] std::string table_text(const std::vector<std::vector<std::string>>& rows,
                                     std::size_t width);

/// "12 s", "2 min", "3 h", "5 d".
[[nodiscard]] std::string span_words(double seconds);
/// "1.2 GiB", "14 MiB", "900 KiB".
[[nodiscard]] std::string size_words(std::uint64_t bytes);
/// Of the terminal at stdout; 80 if it is none, or smaller.
[[nodiscard]] std::size_t terminal_width();

}  // namespace acc::ctl
