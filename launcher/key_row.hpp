#pragma once

#include <cstddef>
#include <string_view>

/// What one row of the table of settings says (key_table.hpp).
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
  path,              ///< of a file or folder; never empty
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
  /// Text with several words in it: a list in the config file means them, separated by commas.
  bool joins_list = false;
};

/// Number of a row. Made from a name at compile time, so that a misspelt name does not compile.
struct Key {
  std::size_t row = 0;
  friend bool operator==(Key, Key) = default;
};

struct GroupRow {
  Group group;
  std::string_view name;  ///< for --help NAME
  std::string_view title;
};

}  // namespace acc::launcher
