#pragma once

#include "launcher/configure/keys.hpp"

#include <cstddef>
#include <string>

namespace acc::configure {

/// A line that is being typed, and where its cursor is; pure.
class LineEdit {
 public:
  void press(const KeyPress& key);
  [[nodiscard]] std::string text() const { return before_ + after_; }
  [[nodiscard]] const std::string& before_cursor() const { return before_; }
  [[nodiscard]] const std::string& behind_cursor() const { return after_; }

 private:
  std::string before_;
  std::string after_;
};

/// Where the last character of UTF-8 text begins; the same of the first one's end.
[[nodiscard]] std::size_t last_character(const std::string& text);
[[nodiscard]] std::size_t first_character_end(const std::string& text);
/// Columns that the text takes, one a character.
[[nodiscard]] std::size_t width_of(const std::string& text);

}  // namespace acc::configure
