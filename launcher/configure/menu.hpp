#pragma once

#include "launcher/configure/keys.hpp"

#include <cstddef>
#include <string>
#include <vector>

namespace acc::configure {

/// Which line of a menu is marked, and which lines are in view; pure.
class Menu {
 public:
  /// @param rows  lines that fit on the screen, at least 1
  Menu(std::vector<std::string> labels, std::size_t initial, std::size_t rows);

  /// Moves the mark: arrows, Home, End, pages. Digits and letters go to the line that begins with
  /// what was typed; digits count lines from 0 where no label is a number.
  void press(const KeyPress& key);
  void resize(std::size_t rows);
  [[nodiscard]] std::size_t marked() const { return marked_; }
  [[nodiscard]] std::size_t first_in_view() const { return first_; }
  [[nodiscard]] std::size_t rows() const;
  [[nodiscard]] const std::vector<std::string>& labels() const { return labels_; }

 private:
  void type(const std::string& text);
  [[nodiscard]] bool find_typed();
  void scroll();

  std::vector<std::string> labels_;
  std::size_t marked_;
  std::size_t rows_;
  std::size_t first_ = 0;
  std::string typed_;
};

}  // namespace acc::configure
