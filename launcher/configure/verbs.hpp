#pragma once

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

struct FlagRow {
  std::string_view name;     ///< with its dashes; _ may be written as -
  char letter;               ///< 0: none
  std::string_view metavar;  ///< empty: takes no value
  std::string_view verbs;    ///< separated by spaces, "-" for none; empty: all of them
  std::string_view help;
};
[[nodiscard]] std::span<const FlagRow> flag_rows();
[[nodiscard]] bool belongs_to(const FlagRow& flag, std::string_view verb);
/// Of `--name` or `-l`; nullptr: there is none of this name.
[[nodiscard]] const FlagRow* find_flag(std::string_view word);

}  // namespace acc::configure
