#pragma once

#include "common/error.hpp"
#include "launcher/value.hpp"

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

/// The one table of settings: command line, config file, --help, --print_config, worker variables
/// and the tables in docs/ all come from it. A new flag is one line in key_table.hpp and one test.
namespace acc::launcher {

enum class Group : unsigned char {
  job,        ///< what to run
  processes,  ///< how many workers, on what
  machines,   ///< several machines
  precision,  ///< mixed precision, dynamo
  restart,
  stop,
  output,
  inspect,   ///< look instead of run
  torchrun,  ///< torchrun's spellings
  deepspeed,
  fsdp,
  megatron,
  fp8,
  parallelism,
  mpi,
  cloud,  ///< TPU and SageMaker: understood, refused
};

/// Where a key stands in the config file.
enum class Place : unsigned char {
  nowhere,  ///< only a flag
  top,
  deepspeed_config,
  fsdp_config,
  parallelism_config,
  megatron_lm_config,
  mpirun_config,
  fp8_config,
  dynamo_config,
};

/// How text becomes a value. Config values of the original's sections are not checked against it:
/// the original doesn't.
enum class Type : unsigned char {
  flag,  ///< takes no value on the command line
  integer,
  number,
  text,
  address,           ///< a host's name or number, without a port; [fd00::1] loses its brackets
  any_text_is_true,  ///< Python's type=bool: empty text is False, anything else True (also "false")
  truth,             ///< y, yes, t, true, on, 1 or their opposites; the worker sees 1 or 0
  truths,            ///< three of them, separated by commas
  duration,
  bytes,    ///< with K, M or G
  signals,  ///< TERM,USR1
  codes,    ///< 2,64-78
  streams,  ///< 0..3, or RANK:N,RANK:N
  ranks,    ///< 0,2
  list,     ///< config only: a list of words
};

enum class Case : unsigned char { kept, lower };

struct KeyRow {
  std::string_view name;  ///< yaml key; the flag is "--" + name, with _ or - throughout
  Group group{};
  Place place{};
  Type type{};
  char letter = 0;                ///< short option
  Case shown = Case::kept;        ///< how the value reaches the variable
  bool is_flag = true;            ///< false: only a config key
  const char* initial = nullptr;  ///< default as text; nullptr: not set
  std::string_view choices{};     ///< separated by spaces; empty: anything of the type
  /// What the worker understands, in any case, for a value that only passes through; BOOL and
  /// NUMBER stand for all words of that kind. Judged only in the mode that uses it. Empty:
  /// anything.
  std::string_view valid{};
  std::string_view variable{};  ///< what the worker sees; empty: nothing of its own
  std::string_view help{};
  std::string_view aliases{};  ///< further long spellings, separated by spaces
};

/// Number of a row. Made from a name at compile time, so that a misspelt name does not compile.
struct Key {
  std::size_t row = 0;
  friend bool operator==(Key, Key) = default;
};

[[nodiscard]] std::span<const KeyRow> key_rows();
[[nodiscard]] const KeyRow& row_of(Key key);

/// By yaml name; nullptr if there is none.
[[nodiscard]] const KeyRow* find_key(std::string_view name);
[[nodiscard]] Key key_of(const KeyRow& row);

struct GroupRow {
  Group group;
  std::string_view name;  ///< for --help NAME
  std::string_view title;
};
[[nodiscard]] std::span<const GroupRow> group_rows();

/// "" for `top` and `nowhere`.
[[nodiscard]] std::string_view section_name(Place place);
/// What a key of this section gets in front if it lacks it; "" if nothing.
[[nodiscard]] std::string_view section_prefix(Place place);
/// Place of the section with this name, `nowhere` if there is none.
[[nodiscard]] Place section_of(std::string_view name);

/// Reads a command line word. The error says what is wrong with the word, not where it stood.
Result<Value> parse_value(const KeyRow& row, std::string_view word);
/// Checks a value from the top level of a config file and gives it the row's type; text that reads
/// as a number is one.
Result<Value> check_value(const KeyRow& row, const Value& value);
/// Whether the worker will understand it, see KeyRow::valid.
Result<void> check_passed_on(const KeyRow& row, const Value& value);
[[nodiscard]] Value default_value(const KeyRow& row);
/// "whole number", "fp16|bf16", for --help.
[[nodiscard]] std::string metavar(const KeyRow& row);

}  // namespace acc::launcher
