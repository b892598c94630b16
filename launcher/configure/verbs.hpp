#pragma once

#include "launcher/flag_table.hpp"

#include <cstddef>
#include <span>
#include <string_view>

/// The one table of acc-config's verbs and flags: the command line, the help, the manual page and
/// the shells' completions read it.
namespace acc::configure {

struct VerbRow {
  std::string_view name;  ///< empty: the questionnaire itself
  std::string_view operands;
  std::size_t max_operands;
  bool takes_words;  ///< behind `--`: a command line of another program
  std::string_view help;
};
[[nodiscard]] std::span<const VerbRow> verb_rows();
[[nodiscard]] const VerbRow* find_verb(std::string_view name);

using launcher::FlagRow;
[[nodiscard]] std::span<const FlagRow> flag_rows();

}  // namespace acc::configure
