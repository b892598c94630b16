#include "launcher/configure/line_edit.hpp"

#include <algorithm>

namespace acc::configure {

static bool goes_on(char c) { return (static_cast<unsigned char>(c) & 0xc0U) == 0x80U; }

std::size_t last_character(const std::string& text) {
  std::size_t at = text.size();
  while (at > 0 && goes_on(text[at - 1])) --at;
  return at > 0 ? at - 1 : 0;
}

std::size_t first_character_end(const std::string& text) {
  std::size_t at = std::min<std::size_t>(1, text.size());
  while (at < text.size() && goes_on(text[at])) ++at;
  return at;
}

std::size_t width_of(const std::string& text) {
  return static_cast<std::size_t>(std::ranges::count_if(text, [](char c) { return !goes_on(c); }));
}

void LineEdit::press(const KeyPress& key) {
  switch (key.name) {
    case KeyPress::Name::text:
      before_ += key.text;
      break;
    case KeyPress::Name::backspace:
      before_.erase(last_character(before_));
      break;
    case KeyPress::Name::remove:
      after_.erase(0, first_character_end(after_));
      break;
    case KeyPress::Name::left: {
      const auto at = last_character(before_);
      after_.insert(0, before_.substr(at));
      before_.erase(at);
      break;
    }
    case KeyPress::Name::right: {
      const auto end = first_character_end(after_);
      before_ += after_.substr(0, end);
      after_.erase(0, end);
      break;
    }
    case KeyPress::Name::home:
      after_.insert(0, before_);
      before_.clear();
      break;
    case KeyPress::Name::end:
      before_ += after_;
      after_.clear();
      break;
    case KeyPress::Name::clear_line:
      before_.clear();
      break;
    case KeyPress::Name::clear_word: {
      const auto word = before_.find_last_not_of(' ');
      const auto blank = word == std::string::npos ? word : before_.rfind(' ', word);
      before_.erase(blank == std::string::npos ? 0 : blank + 1);
      break;
    }
    default:
      break;
  }
}

}  // namespace acc::configure
