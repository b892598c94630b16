#pragma once

#include "launcher/configure/other_launchers.hpp"

#include <span>
#include <string>
#include <vector>

/// The Python that a command line names.
namespace acc::configure {

/// python, python3, python3.11, or a path to one of them.
[[nodiscard]] bool is_python(const std::string& word);

/// A path or a name with a version, "python3.11": acc-launch by itself may take another one.
[[nodiscard]] bool is_certain_python(const std::string& word);

/// `python OPTIONS -m MODULE`.
struct ModuleCall {
  std::string module;                ///< empty: it is no such call
  std::vector<std::string> options;  ///< with their values; without -u, which workers have, too
  std::size_t next = 0;              ///< word behind the module
};
/// @param at  the word behind the interpreter
[[nodiscard]] ModuleCall read_module_call(std::span<const std::string> words, std::size_t at);

/// `python -u -m pkg.train`: the module; `python train.py`: the script. Where other options of
/// the interpreter stand in front of the script, it stays the program. False: the line's program is
/// no Python.
bool take_python(ForeignLine& line);

/// Lets acc-launch take this interpreter, on hosts, too.
void set_interpreter(ForeignLine& line, const std::string& interpreter);

}  // namespace acc::configure
