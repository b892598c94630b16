#pragma once

#include "common/error.hpp"
#include "launcher/flag_table.hpp"

#include <span>
#include <string>
#include <vector>

namespace acc::configure {

/// acc-config's words, sorted; nothing is looked up.
struct Command {
  std::string verb;  ///< empty: the questionnaire
  std::vector<std::string> operands;
  launcher::FlagValues flags;
  std::vector<std::string> words;  ///< behind `--`
  bool has_words = false;
  Complaints complaints;

  [[nodiscard]] bool has(std::string_view flag) const { return flags.contains(flag); }
  /// The last one given; empty: none.
  [[nodiscard]] std::string value(std::string_view flag) const;
  [[nodiscard]] std::vector<std::string> values(std::string_view flag) const;
};

/// Total: any words give an answer, with all complaints together.
[[nodiscard]] Command parse_command(std::span<const std::string> words);

}  // namespace acc::configure
