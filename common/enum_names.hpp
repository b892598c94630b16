#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <string_view>

namespace acc {

/// Names of an enumeration whose values count from 0 to `Last`, tied to it: a value without a name,
/// or a name without a value, doesn't compile.
template <class Enum, Enum Last>
class EnumNames {
 public:
  static constexpr std::size_t kSize = static_cast<std::size_t>(Last) + 1;

  template <std::size_t Size>
  consteval explicit(false) EnumNames(const std::string_view (&names)[Size]) {
    static_assert(Size == kSize, "one text for each value");
    for (std::size_t i = 0; i < Size; ++i) names_[i] = names[i];
  }

  /// "?" for a number that is no value of the enumeration.
  [[nodiscard]] constexpr std::string_view operator[](Enum value) const {
    const auto index = static_cast<std::size_t>(value);
    return index < kSize ? names_[index] : std::string_view{"?"};
  }
  /// The value with this name.
  [[nodiscard]] constexpr std::optional<Enum> find(std::string_view name) const {
    for (std::size_t i = 0; i < kSize; ++i)
      if (names_[i] == name) return static_cast<Enum>(i);
    return std::nullopt;
  }
  [[nodiscard]] constexpr auto begin() const { return names_.begin(); }
  [[nodiscard]] constexpr auto end() const { return names_.end(); }

 private:
  std::array<std::string_view, kSize> names_{};
};

}  // namespace acc
