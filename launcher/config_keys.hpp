#pragma once

#include "common/error.hpp"
#include "launcher/key_row.hpp"
#include "launcher/value.hpp"

#include <span>
#include <string>
#include <string_view>

/// The one table of settings: command line, config file, --help, --print_config, worker variables
/// and the tables in docs/ all come from it. A new flag is one line in key_table.hpp and one test.
namespace acc::launcher {

[[nodiscard]] std::span<const KeyRow> key_rows();
[[nodiscard]] const KeyRow& row_of(Key key);

/// By yaml name; nullptr if there is none.
[[nodiscard]] const KeyRow* find_key(std::string_view name);
[[nodiscard]] Key key_of(const KeyRow& row);

[[nodiscard]] std::span<const GroupRow> group_rows();

/// "" for `top` and `nowhere`.
[[nodiscard]] std::string_view section_name(Place place);
/// What a key of this section gets in front if it lacks it; "" if nothing.
[[nodiscard]] std::string_view section_prefix(Place place);
/// `name` with the prefix of its section, which may be left out in the file.
[[nodiscard]] std::string name_in_section(Place place, const std::string& name);
/// Place of the section with this name, `nowhere` if there is none.
[[nodiscard]] Place section_of(std::string_view name);

/// Reads a command line word. The error says what is wrong with the word, not where it stood.
Result<Value> parse_value(const KeyRow& row, std::string_view word);
/// A list or a mapping where the file must have one value, or a list with more than values in it.
Result<void> check_shape(const KeyRow& row, const Value& value);
/// Items of a list, separated by commas.
[[nodiscard]] std::string joined(const List& list);
/// Checks a value from the top level of a config file and gives it the row's type; text that reads
/// as a number is one.
Result<Value> check_value(const KeyRow& row, const Value& value);
/// Whether the worker will understand it, see KeyRow::valid.
Result<void> check_passed_on(const KeyRow& row, const Value& value);
[[nodiscard]] Value default_value(const KeyRow& row);
/// "whole number", "fp16|bf16", for --help.
[[nodiscard]] std::string metavar(const KeyRow& row);

}  // namespace acc::launcher
