#include "launcher/configure/keys.hpp"

#include <algorithm>
#include <utility>

namespace acc::configure {

namespace {

using Name = KeyPress::Name;

constexpr char kEscape = '\x1b';

Name control_key(char c) {
  constexpr std::pair<char, Name> kControls[] = {
      {'\r', Name::enter},        {'\n', Name::enter},        {'\x7f', Name::backspace},
      {'\b', Name::backspace},    {'\x01', Name::home},       {'\x05', Name::end},
      {'\x02', Name::back},       {'\x03', Name::interrupt},  {'\x04', Name::closed},
      {'\x15', Name::clear_line}, {'\x17', Name::clear_word}, {'\x1a', Name::suspend},
      {'\x10', Name::up},         {'\x0e', Name::down}};
  for (const auto& [control, name] : kControls)
    if (control == c) return name;
  return Name::unknown;
}

/// Of what stands between `ESC [` or `ESC O` and the end, with the end.
Name sequence_key(std::string_view sequence) {
  constexpr std::pair<std::string_view, Name> kSequences[] = {
      {"A", Name::up},      {"B", Name::down}, {"C", Name::right},    {"D", Name::left},
      {"H", Name::home},    {"F", Name::end},  {"1~", Name::home},    {"7~", Name::home},
      {"4~", Name::end},    {"8~", Name::end}, {"5~", Name::page_up}, {"6~", Name::page_down},
      {"3~", Name::remove}, {"M", Name::enter}};
  for (const auto& [known, name] : kSequences)
    if (known == sequence) return name;
  return Name::unknown;
}

/// Bytes of a UTF-8 character by its first; 1 for what is none.
std::size_t character_size(unsigned char first) {
  if (first >= 0xf0U && first < 0xf8U) return 4;
  if (first >= 0xe0U && first < 0xf0U) return 3;
  return first >= 0xc2U && first < 0xe0U ? 2 : 1;
}

}  // namespace

std::optional<KeyPress> KeyDecoder::take(std::size_t size, KeyPress key) {
  bytes_.erase(0, size);
  return key;
}

std::optional<KeyPress> KeyDecoder::escape_sequence(bool is_all) {
  if (bytes_.size() == 1) return is_all ? take(1, {}) : std::nullopt;
  if (bytes_[1] != '[' && bytes_[1] != 'O') return take(2, {});
  const auto end =
      std::find_if(bytes_.begin() + 2, bytes_.end(), [](char c) { return c >= '@' && c <= '~'; });
  if (end == bytes_.end()) return is_all ? take(bytes_.size(), {}) : std::nullopt;
  const auto size = static_cast<std::size_t>(end - bytes_.begin()) + 1;
  return take(size, {sequence_key(std::string_view{bytes_}.substr(2, size - 2)), {}});
}

std::optional<KeyPress> KeyDecoder::next(bool is_all) {
  if (bytes_.empty()) return std::nullopt;
  if (bytes_[0] == kEscape) return escape_sequence(is_all);
  const auto first = static_cast<unsigned char>(bytes_[0]);
  if (first < 0x20U || first == 0x7fU) return take(1, {control_key(bytes_[0]), {}});
  const auto size = character_size(first);
  if (bytes_.size() < size && !is_all) return std::nullopt;
  return take(std::min(size, bytes_.size()), {Name::text, bytes_.substr(0, size)});
}

}  // namespace acc::configure
