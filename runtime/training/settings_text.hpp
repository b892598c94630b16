#pragma once

#include <array>
#include <charconv>
#include <string>

namespace acc::runtime::training {

/// The shortest text that reads as this number: two settings that differ look different.
[[nodiscard]] inline std::string shortest(double value) {
  std::array<char, 32> text{};
  const auto [end, error] = std::to_chars(text.data(), text.data() + text.size(), value);
  return {text.data(), end};
}

}  // namespace acc::runtime::training
