#include "common/json_bytes.hpp"

#include <algorithm>
#include <cstdint>

namespace acc {

namespace {

constexpr std::string_view kMark = "\x01";

std::uint8_t byte_at(std::string_view text, std::size_t at) {
  return at < text.size() ? static_cast<std::uint8_t>(text[at]) : std::uint8_t{0};
}

/// Bytes of the character that `text` begins with; 0 if it is none.
std::size_t length_of_character(std::string_view text) {
  const std::uint8_t first = byte_at(text, 0);
  if (first < 0x80) return 1;
  const std::size_t length = first < 0xC2   ? 0
                             : first < 0xE0 ? 2
                             : first < 0xF0 ? 3
                             : first < 0xF5 ? 4
                                            : 0;
  const auto continues = [](char c) { return (static_cast<std::uint8_t>(c) & 0xC0U) == 0x80U; };
  if (length == 0 || length > text.size()) return 0;
  if (!std::ranges::all_of(text.substr(1, length - 1), continues)) return 0;
  const std::uint8_t second = byte_at(text, 1);
  const bool is_overlong = (first == 0xE0 && second < 0xA0) || (first == 0xF0 && second < 0x90);
  const bool is_out_of_range = (first == 0xED && second > 0x9F) || (first == 0xF4 && second > 0x8F);
  return is_overlong || is_out_of_range ? 0 : length;
}

}  // namespace

bool is_utf8(std::string_view text) {
  while (!text.empty()) {
    const std::size_t length = length_of_character(text);
    if (length == 0) return false;
    text.remove_prefix(length);
  }
  return true;
}

std::string json_text_of(std::string_view bytes) {
  if (!bytes.starts_with(kMark) && is_utf8(bytes)) return std::string{bytes};
  std::string text{kMark};
  for (const char c : bytes) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x80) {
      text += c;
    } else {
      text += static_cast<char>(0xC0 | (byte >> 6U));
      text += static_cast<char>(0x80 | (byte & 0x3FU));
    }
  }
  return text;
}

std::vector<std::string> json_texts_of(std::span<const std::string> all) {
  std::vector<std::string> texts;
  texts.reserve(all.size());
  for (const auto& bytes : all) texts.push_back(json_text_of(bytes));
  return texts;
}

std::string bytes_of(std::string_view text) {
  if (!text.starts_with(kMark)) return std::string{text};
  std::string bytes;
  for (std::size_t i = kMark.size(); i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    if (byte >= 0x80 && i + 1 < text.size()) {
      const auto next = static_cast<unsigned char>(text[++i]);
      bytes += static_cast<char>(((byte & 0x03U) << 6U) | (next & 0x3FU));
    } else {
      bytes += text[i];
    }
  }
  return bytes;
}

}  // namespace acc
