#pragma once

#include "common/error.hpp"
#include "launcher/config_keys.hpp"

#include <optional>
#include <span>
#include <string>
#include <vector>

namespace acc::launcher {

struct GivenOption {
  Key key;
  Value value;
  std::string spelled;  ///< as on the command line: "--num-processes"
  std::string word{};   ///< its value there; empty for a switch
};

/// What the words of a command line say, nothing added.
struct CommandLine {
  std::vector<GivenOption> options;  ///< one a key: the last one given
  std::optional<std::string> script;
  std::vector<std::string> script_args;
  std::optional<std::string> help_topic;   ///< --help: "", or the next word: a group, a flag, "all"
  std::optional<std::string> secret_path;  ///< --make_secret: "", or the file that is named
  std::vector<std::string> env;            ///< --env, each time it was given
  Complaints complaints;                   ///< of usage
  std::vector<std::size_t>
      foreign;  ///< those of them about another launcher's flags that no setting of ours answers to
  std::vector<Key> rejected;  ///< given, but with a bad value or misspelled
  /// false: behind a flag that nobody knows, `script` may be that flag's value.
  bool script_is_certain = true;

  [[nodiscard]] const GivenOption* given(Key key) const;
};

/// Reads the words after the program's name, as Python 3.11's argparse does for the original
/// (docs/compatibility.md). Total: any words give an answer.
CommandLine parse_command_line(std::span<const std::string> words);

}  // namespace acc::launcher
