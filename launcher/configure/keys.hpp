#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace acc::configure {

struct KeyPress {
  enum class Name {
    text,  ///< what was typed, one character
    enter,
    up,
    down,
    left,
    right,
    home,
    end,
    page_up,
    page_down,
    backspace,
    remove,
    clear_line,  ///< Ctrl-U
    clear_word,  ///< Ctrl-W
    back,        ///< Ctrl-B
    interrupt,   ///< Ctrl-C
    closed,      ///< Ctrl-D
    gone,        ///< the terminal, for good
    suspend,     ///< Ctrl-Z
    unknown,
  };
  Name name = Name::unknown;
  std::string text{};
  friend bool operator==(const KeyPress&, const KeyPress&) = default;
};

/// Bytes of a terminal in raw mode as keys. Total: what is no known sequence is `unknown`.
class KeyDecoder {
 public:
  void feed(std::string_view bytes) { bytes_ += bytes; }
  /// The next whole key. @param is_all  no more bytes follow soon: an ESC alone is the key Esc
  [[nodiscard]] std::optional<KeyPress> next(bool is_all);
  /// Bytes wait for the rest of their sequence.
  [[nodiscard]] bool is_partial() const { return !bytes_.empty(); }

 private:
  std::optional<KeyPress> take(std::size_t size, KeyPress key);
  std::optional<KeyPress> escape_sequence(bool is_all);

  std::string bytes_;
};

}  // namespace acc::configure
