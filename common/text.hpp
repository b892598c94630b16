#pragma once

#include <charconv>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace acc {

/// The whole of `text` as a number of type T; nothing for empty text, spaces, misplaced signs or
/// overflow.
template <class T>
[[nodiscard]] std::optional<T> parse_number(std::string_view text) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return value;
}

[[nodiscard]] std::vector<std::string> split(std::string_view text, char separator);
/// "1 line", "2 lines"
[[nodiscard]] std::string plural(std::uint64_t n, std::string_view one);
[[nodiscard]] std::string join(std::span<const std::string> parts, std::string_view separator);
[[nodiscard]] std::string to_lower(std::string_view text);
[[nodiscard]] std::string to_upper(std::string_view text);
[[nodiscard]] std::string_view trim(std::string_view text);
/// `text` with all bytes escaped that don't show as themselves on a terminal (plain_text.hpp), cut
/// behind `limit` bytes: safe to print for any origin.
[[nodiscard]] std::string printable(std::string_view text, std::size_t limit = 200);
/// 'text', escaped by printable().
[[nodiscard]] std::string in_quotes(std::string_view text, std::size_t limit = 500);
/// The candidate nearest to `word` by edit distance; empty if none is near enough to be meant.
[[nodiscard]] std::string_view nearest(std::string_view word,
                                       std::span<const std::string_view> candidates);

}  // namespace acc
