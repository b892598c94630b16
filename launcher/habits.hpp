#pragma once

#include <string_view>

/// Words that people bring along from other launchers, and what to type here in their place.
namespace acc::launcher {

struct Habit {
  std::string_view words;  ///< without dashes, separated by spaces
  std::string_view hint;
  bool takes_value = false;
  std::string_view key{};   ///< the setting that was meant, where it is one
  bool takes_pair = false;  ///< NAME VALUE behind it; NAME=VALUE is one word
};

/// By the word as typed, without a value: "--use_env", "-np". nullptr: nobody's habit that we know.
[[nodiscard]] const Habit* habit_of(std::string_view word);

/// For a "script" that is a command of `accelerate`, as "launch", or another launcher. Empty for
/// other words.
[[nodiscard]] std::string_view command_hint(std::string_view word);

}  // namespace acc::launcher
