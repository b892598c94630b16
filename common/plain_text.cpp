#include "common/plain_text.hpp"

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <utility>

namespace acc {

namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD

/// One character at the front of `text`.
struct Scanned {
  char32_t character = 0;
  std::size_t bytes = 1;
  bool is_valid = false;
};

bool is_continuation(char c) { return (static_cast<unsigned char>(c) & 0xC0U) == 0x80U; }

/// Bytes of the character that `first` begins.
std::size_t length_of(unsigned char first) {
  return first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : first >= 0xC2 ? 2 : 1;
}

// By Unicode's table 3-7, as is_utf8 of json_bytes.hpp.
Scanned scan(std::string_view text) {
  const auto first = static_cast<unsigned char>(text[0]);
  if (first < 0x80) return {first, 1, true};
  const std::size_t length = length_of(first);
  if (first < 0xC2 || first > 0xF4 || text.size() < length) return {};
  char32_t character = first & (0xFFU >> (length + 1));
  for (std::size_t i = 1; i < length; ++i) {
    if (!is_continuation(text[i])) return {};
    character = (character << 6U) | (static_cast<unsigned char>(text[i]) & 0x3FU);
  }
  constexpr char32_t kLeast[] = {0, 0, 0x80, 0x800, 0x10000};
  const bool is_surrogate = character >= 0xD800 && character < 0xE000;
  if (character < kLeast[length] || is_surrogate || character > 0x10FFFF) return {};
  return {character, length, true};
}

bool is_control(char32_t c) { return c < 0x20 || (c >= 0x7F && c < 0xA0); }

/// Turns the direction of text, breaks lines, or takes no place.
bool is_invisible(char32_t c) {
  const bool is_filler = c == 0x34F || c == 0x115F || c == 0x1160 || c == 0x17B4 || c == 0x17B5 ||
                         c == 0x3164 || c == 0xFFA0;
  return is_filler || c == 0xAD || c == 0x61C || c == 0x180E || (c >= 0x200B && c <= 0x200F) ||
         (c >= 0x2028 && c <= 0x202E) || (c >= 0x2060 && c <= 0x206F) || c == 0xFEFF ||
         (c >= 0xFFF9 && c <= 0xFFFB) || (c >= 0xE0000 && c <= 0xE0FFF);
}

/// Parts of words in some scripts, and of emoji: they take no place, but hide nothing.
bool is_joiner(char32_t c) { return c == 0x200C || c == 0x200D; }

/// `text` may be the beginning of a character whose end isn't there yet.
bool is_cut(std::string_view text) {
  const auto first = static_cast<unsigned char>(text[0]);
  return first <= 0xF4 && text.size() < length_of(first) &&
         std::ranges::all_of(text.substr(1), is_continuation);
}

/// "\x1b", "\u202e", "\U000e0001"
std::string visible(char32_t c) {
  char text[16];
  const char* const format = c < 0x80 ? "\\x%02x" : c < 0x10000 ? "\\u%04x" : "\\U%08x";
  std::snprintf(text, sizeof text, format, static_cast<unsigned>(c));
  return text;
}

/// Behind a string of a control function (OSC, DCS …), which ends with BEL or ST.
std::size_t end_of_string(std::string_view text, std::size_t at) {
  for (; at < text.size(); ++at) {
    if (text[at] == '\a') return at + 1;
    if (text[at] == '\x1b') return at + 1 < text.size() && text[at + 1] == '\\' ? at + 2 : at;
    if (text[at] == '\xc2' && at + 1 < text.size() && text[at + 1] == '\x9c') return at + 2;
  }
  return at;
}

/// Behind the parameters and the final byte of a control sequence (CSI).
std::size_t end_of_sequence(std::string_view text, std::size_t at) {
  while (at < text.size() && text[at] >= 0x20 && text[at] < 0x40) ++at;
  return at < text.size() && text[at] >= 0x40 && text[at] < 0x7F ? at + 1 : at;
}

/// Behind the escape sequence whose kind is `kind` and whose content begins at `at` (ECMA-48).
std::size_t end_of_escape(std::string_view text, char32_t kind, std::size_t at) {
  if (kind == '[') return end_of_sequence(text, at);
  if (kind == ']' || kind == 'P' || kind == 'X' || kind == '^' || kind == '_')
    return end_of_string(text, at);
  if (kind < 0x20 || kind > 0x2F) return at;
  while (at < text.size() && text[at] >= 0x20 && text[at] <= 0x2F) ++at;
  return at < text.size() && text[at] >= 0x30 && text[at] < 0x7F ? at + 1 : at;
}

/// Bytes of the control sequence, or of the string of a control function, that `line` begins with;
/// 0: it is neither, or has no end.
std::size_t end_of_whole_sequence(std::string_view line) {
  if (line.size() < 3) return 0;
  const char kind = line[1];
  const bool is_string = kind == ']' || kind == 'P' || kind == 'X' || kind == '^' || kind == '_';
  if (kind != '[' && !is_string) return 0;
  const auto end = is_string ? end_of_string(line, 2) : end_of_sequence(line, 2);
  const char last = line[end - 1];
  if (is_string) return last == '\a' || line.substr(0, end).ends_with("\x1b\\") ? end : 0;
  return end > 2 && last >= 0x40 && last < 0x7F ? end : 0;
}

/// What a terminal shows of a line with a progress bar, if each state is longer than the last one.
std::string_view last_state(std::string_view line) {
  while (!line.empty() && (line.back() == '\r' || line.back() == '\n')) line.remove_suffix(1);
  return line.substr(line.rfind('\r') + 1);  // npos + 1 is 0
}

}  // namespace

std::size_t shown_character(std::string_view text) {
  if (text.empty()) return 0;
  const auto next = scan(text);
  const bool is_shown =
      next.is_valid && !is_control(next.character) && !is_invisible(next.character);
  return is_shown ? next.bytes : 0;
}

std::string plain_line(std::string_view line, std::size_t limit) {
  constexpr std::size_t kTab = 8;
  line = last_state(line);
  std::string out;
  std::size_t column = 0;
  for (std::size_t at = 0; at < line.size();) {
    const auto next = scan(line.substr(at));
    const auto begin = at;
    at += next.bytes;
    if (next.character == 0x1B && next.is_valid) {
      if (at >= line.size()) break;
      const char kind = line[at];
      if (kind >= 0x20 && kind < 0x7F)
        at = end_of_escape(line, static_cast<char32_t>(kind), at + 1);
      continue;
    }
    const bool is_c1 = next.is_valid && next.character >= 0x80 && next.character < 0xA0;
    if (is_c1) {
      at = end_of_escape(line, next.character - 0x40, at);
      continue;
    }
    std::string_view piece = line.substr(begin, next.bytes);
    if (!next.is_valid) piece = "?";
    if (next.character == '\t')
      piece = std::string_view{"        "}.substr(0, kTab - column % kTab);
    else if (next.is_valid && (is_control(next.character) || is_invisible(next.character)))
      continue;
    if (out.size() + piece.size() > limit) break;
    out += piece;
    column += next.character == '\t' ? piece.size() : 1;
  }
  return out;
}

std::string SafeText::add(std::string_view piece) {
  std::string joined;
  if (!cut_.empty()) {
    joined = std::exchange(cut_, {}).append(piece);
    piece = joined;
  }
  std::string out;
  out.reserve(piece.size());
  while (!piece.empty()) {
    const auto next = scan(piece);
    if (!next.is_valid && is_cut(piece)) {
      cut_ = piece;
      break;
    }
    const bool is_kept = next.character == '\n' || next.character == '\t' ||
                         is_joiner(next.character) ||
                         !(is_control(next.character) || is_invisible(next.character));
    if (!next.is_valid) {
      out += kReplacement;
    } else if (is_kept) {
      out += piece.substr(0, next.bytes);
    } else {
      out += visible(next.character);
    }
    piece.remove_prefix(next.bytes);
  }
  return out;
}

std::string SafeText::end() {
  std::string out;
  for (std::size_t i = 0; i < cut_.size(); ++i) out += kReplacement;
  cut_.clear();
  return out;
}

std::string safe_text(std::string_view text) {
  SafeText safe;
  auto out = safe.add(text);
  return out += safe.end();
}

std::string without_sequences(std::string_view text) {
  constexpr std::size_t kLongest = 4096;  // of one with the address of a link
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const auto begin = std::min(text.find('\x1b'), text.size());
    out += text.substr(0, begin);
    text.remove_prefix(begin);
    if (text.empty()) break;
    const auto line = text.substr(0, kLongest);
    const auto end = end_of_whole_sequence(line.substr(0, line.find('\n')));
    if (end == 0) out += text[0];
    text.remove_prefix(std::max<std::size_t>(end, 1));
  }
  return out;
}

std::string last_plain_line(std::string_view text, std::size_t limit) {
  while (!text.empty()) {
    const auto begin = text.rfind('\n') + 1;  // npos + 1 is 0
    const auto line = plain_line(text.substr(begin), limit);
    if (line.find_first_not_of(' ') != std::string::npos) return line;
    text = text.substr(0, begin == 0 ? 0 : begin - 1);
  }
  return {};
}

std::string safe_json(std::string_view json) {
  const auto add_escape = [](std::string& out, char16_t unit) {
    char escaped[8];
    std::snprintf(escaped, sizeof escaped, "\\u%04x", static_cast<unsigned>(unit));
    out += escaped;
  };
  std::string out;
  out.reserve(json.size());
  while (!json.empty()) {
    const auto next = scan(json);
    const auto c = next.character;
    const bool is_space = c == '\n' || c == '\t' || c == '\r';
    const bool is_escaped = (is_control(c) && !is_space) || (is_invisible(c) && !is_joiner(c));
    if (!next.is_valid) {
      out += kReplacement;
    } else if (!is_escaped) {
      out += json.substr(0, next.bytes);
    } else if (c < 0x10000) {
      add_escape(out, static_cast<char16_t>(c));
    } else {  // as two units of UTF-16
      add_escape(out, static_cast<char16_t>(0xD800 + ((c - 0x10000) >> 10U)));
      add_escape(out, static_cast<char16_t>(0xDC00 + ((c - 0x10000) & 0x3FFU)));
    }
    json.remove_prefix(next.bytes);
  }
  return out;
}

}  // namespace acc
