#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace acc {

/// One line of foreign text as UTF-8 that is safe on any terminal: escape sequences and control
/// characters are dropped, so are characters that turn the direction of text or take no place; tabs
/// become spaces, bytes that aren't UTF-8 '?'. Of a progress bar ('\r') only the last state is
/// left.
/// @param limit  bytes at most; no character is cut
[[nodiscard]] std::string plain_line(std::string_view line, std::size_t limit = std::string::npos);

/// Bytes of the character at the front of `text`, if it shows as itself on any terminal; 0: it is a
/// control character, turns or hides text, or is no UTF-8.
[[nodiscard]] std::size_t shown_character(std::string_view text);

/// The last line of `text` that has anything to read, as plain_line gives it; empty: none.
[[nodiscard]] std::string last_plain_line(std::string_view text, std::size_t limit);

/// Foreign text of many lines, made safe for a terminal piece by piece: nothing is deleted, so that
/// no two halves of a character join, and a character may be cut between two pieces. What a
/// terminal obeys, turns or hides becomes visible ("\x1b", "\u009b", "\u202e"), each byte that
/// isn't UTF-8 U+FFFD; line ends, tabs and the joiners of scripts and emoji (U+200C, U+200D) stay.
class SafeText {
 public:
  /// What of `piece` can be judged already.
  [[nodiscard]] std::string add(std::string_view piece);
  /// What was kept for a next piece that doesn't follow.
  [[nodiscard]] std::string end();

 private:
  std::string cut_;  ///< the beginning of a character, at most three bytes
};

/// The same of a whole text.
[[nodiscard]] std::string safe_text(std::string_view text);

/// Foreign text without what colours it, moves the cursor or sets a title: control sequences (ESC [
/// … final byte) and strings of control functions (ESC ] … BEL or ESC \) that end in their line.
/// Other control characters stay: it isn't safe for a terminal.
[[nodiscard]] std::string without_sequences(std::string_view text);

/// JSON that is safe for a terminal, and means the same: what safe_text makes visible is written as
/// "\u009b", which a reader of JSON turns back; bytes that aren't UTF-8, and so no JSON, are
/// U+FFFD.
[[nodiscard]] std::string safe_json(std::string_view json);

}  // namespace acc
