#include "launcher/configure/menu.hpp"

#include "common/text.hpp"

#include <algorithm>
#include <utility>

namespace acc::configure {

Menu::Menu(std::vector<std::string> labels, std::size_t initial, std::size_t rows)
    : labels_{std::move(labels)}, marked_{initial}, rows_{std::max<std::size_t>(rows, 1)} {
  scroll();
}

std::size_t Menu::rows() const { return std::min(rows_, labels_.size()); }

void Menu::resize(std::size_t rows) {
  rows_ = std::max<std::size_t>(rows, 1);
  scroll();
}

void Menu::press(const KeyPress& key) {
  const auto last = labels_.size() - 1;
  if (key.name == KeyPress::Name::text) return type(key.text);
  typed_.clear();
  switch (key.name) {
    case KeyPress::Name::up:
      marked_ -= marked_ > 0 ? 1 : 0;
      break;
    case KeyPress::Name::down:
      marked_ = std::min(marked_ + 1, last);
      break;
    case KeyPress::Name::home:
      marked_ = 0;
      break;
    case KeyPress::Name::end:
      marked_ = last;
      break;
    case KeyPress::Name::page_up:
      marked_ -= std::min(marked_, rows());
      break;
    case KeyPress::Name::page_down:
      marked_ = std::min(marked_ + rows(), last);
      break;
    default:
      return;
  }
  scroll();
}

void Menu::type(const std::string& text) {
  typed_ += to_lower(text);
  // Not the rest of the word before: the beginning of another one.
  if (!find_typed()) {
    typed_ = to_lower(text);
    if (!find_typed()) typed_.clear();
  }
  scroll();
}

bool Menu::find_typed() {
  for (std::size_t i = 0; i < labels_.size(); ++i) {
    if (!to_lower(labels_[i]).starts_with(typed_)) continue;
    marked_ = i;
    return true;
  }
  const auto line = parse_number<std::size_t>(typed_);
  if (!line || *line >= labels_.size()) return false;
  marked_ = *line;
  return true;
}

void Menu::scroll() {
  if (marked_ < first_) first_ = marked_;
  if (marked_ >= first_ + rows()) first_ = marked_ + 1 - rows();
  first_ = std::min(first_, labels_.size() - rows());
}

}  // namespace acc::configure
