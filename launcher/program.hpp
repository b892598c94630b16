#pragma once

#include "launcher/config.hpp"

#include <cstddef>
#include <string>
#include <string_view>

/// What kind of thing a script is, and which Python runs it. Reads files, starts nothing.
namespace acc::launcher {

enum class ScriptKind {
  missing,
  python,      ///< for the interpreter: *.py, or anything not below
  executable,  ///< an ELF file, or an executable with an interpreter line other than Python's: runs
               ///< by itself
  not_executable,  ///< would be one, but may not be run
};

/// `path` as given, relative to the working directory.
[[nodiscard]] ScriptKind script_kind(const std::string& path);

/// The first `limit` bytes of a regular file, or what one read gives of them; else nothing.
[[nodiscard]] std::string beginning_of_script(const std::string& path, std::size_t limit);

/// What the kernel would run the file by: the first word behind "#!"; empty: there is none.
[[nodiscard]] std::string interpreter_in_script(const std::string& path);

/// An ELF file, not a script: no Python runs behind it.
[[nodiscard]] bool is_binary(const std::string& path);

/// A folder or a file that Python can't begin with, as exec would say it: EACCES, or EISDIR for a
/// folder without __main__. 0: it can.
[[nodiscard]] int why_not_for_python(const std::string& path);

/// Full path of a program on PATH, or `name` itself if it holds a slash and may be run; empty if
/// there is none.
[[nodiscard]] std::string find_program(std::string_view name, const Environment& environment);

/// $PYTHON_EXEC, else the python of the virtual environment in which this program is installed, else
/// that of $VIRTUAL_ENV or $CONDA_PREFIX, else python3 or python on PATH, else "python3".
/// @param program  a link to this program
[[nodiscard]] std::string find_interpreter(const Environment& environment,
                                           const std::string& program = "/proc/self/exe");

/// Path of the program of this process; `otherwise` where /proc doesn't say.
[[nodiscard]] std::string own_program(const std::string& otherwise);

}  // namespace acc::launcher
