#pragma once

#include "launcher/flag_table.hpp"

#include <cstddef>
#include <span>
#include <string_view>

/// The one table of acc-ctl's verbs and flags: the command line, the help, the manual page and the
/// shells' completions read it.
namespace acc::ctl {

struct VerbRow {
  std::string_view name;
  std::string_view operands;  ///< as the help shows them; "ID" is completed with jobs
  std::size_t operand_count;
  std::string_view help;
};
[[nodiscard]] std::span<const VerbRow> verb_rows();
[[nodiscard]] const VerbRow* find_verb(std::string_view name);

using launcher::FlagRow;
[[nodiscard]] std::span<const FlagRow> flag_rows();
/// Of `--name` or `-l`; null: no flag of this verb. Before the verb is known (empty) any is found.
[[nodiscard]] const FlagRow* find_flag(std::string_view word, std::string_view verb);

}  // namespace acc::ctl
