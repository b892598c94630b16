#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

/// Flags of a program with verbs (acc-ctl, acc-config), from a table: the command line, the help,
/// the manual page and the shells' completions read it. acc-launch's own are in key_table.hpp.
namespace acc::launcher {

struct FlagRow {
  std::string_view name;     ///< with its dashes; - and _ in it are the same
  char letter;               ///< 0: none
  std::string_view metavar;  ///< empty: takes no value
  std::string_view verbs;    ///< separated by spaces, "-" for no verb; empty: all of them
  std::string_view help;
};

[[nodiscard]] bool belongs_to(const FlagRow& flag, std::string_view verb);
/// Of `--name` or `-l`; nullptr: there is none of this name.
[[nodiscard]] const FlagRow* find_flag(std::span<const FlagRow> table, std::string_view word);
/// The flag of this verb nearest to `word`; empty: none is near enough to be meant.
[[nodiscard]] std::string_view nearest_flag(std::span<const FlagRow> table, std::string_view verb,
                                            std::string_view word);

/// By FlagRow::name; a flag without a value has empty ones.
using FlagValues = std::map<std::string, std::vector<std::string>, std::less<>>;

/// `words[at - 1]` is this flag: takes its value, which may be the next word.
/// @return a complaint; empty: all is well
[[nodiscard]] std::string take_flag(const FlagRow& flag, std::span<const std::string> words,
                                    std::size_t& at, FlagValues& into);
/// The last one given; empty: none.
[[nodiscard]] std::string last_value(const FlagValues& flags, std::string_view name);

// ---- texts ----
/// Two columns, the right one wrapped at 80.
[[nodiscard]] std::string help_entry(const std::string& left, std::string_view right);
[[nodiscard]] std::string help_entry(const FlagRow& flag);

/// "--name", "-l"
[[nodiscard]] std::vector<std::string> spellings(const FlagRow& flag);
/// Of all flags of a verb, separated by spaces.
[[nodiscard]] std::string spellings_of(std::span<const FlagRow> table, std::string_view verb);
/// In single quotes of a shell, within brackets of zsh's _arguments.
[[nodiscard]] std::string zsh_text(std::string_view text);
/// In single quotes of fish.
[[nodiscard]] std::string fish_text(std::string_view text);
/// What follows the condition in a line of fish's `complete`.
[[nodiscard]] std::string fish_flag(const FlagRow& flag);

}  // namespace acc::launcher
