#pragma once

#include "agent/job_plan.hpp"
#include "launcher/cli.hpp"
#include "launcher/config.hpp"
#include "launcher/job_spec.hpp"
#include "launcher/program.hpp"

#include <string>
#include <vector>

/// Whether the script of a job can be started: what exec would say, with what to type instead.
namespace acc::launcher {

/// A module counts as a file for Python: where it lies only Python knows.
[[nodiscard]] ScriptKind script_kind_of(const JobSpec& spec);

/// No script at all, or a word that is none and is known from another program ("run", "config").
[[nodiscard]] Complaints check_script_word(const CommandLine& line, const JobSpec& spec);

/// Of a Python script that doesn't read them itself, as far as its text shows: flags behind it that
/// were probably meant for acc-launch.
[[nodiscard]] std::vector<std::string> notes_about_arguments(const CommandLine& line,
                                                             const JobSpec& spec);

/// Of a script without the name .py, which pip has written into the virtual environment of another
/// Python than `interpreter`: that one may lack its modules. Empty: nothing to tell.
[[nodiscard]] std::string note_about_interpreter(const JobSpec& spec,
                                                 const std::string& interpreter);

/// What exec would say, before anything is started; errnum 0: nothing.
[[nodiscard]] agent::ScriptProblem check_script_file(const JobSpec& spec,
                                                     const Environment& environment);

}  // namespace acc::launcher
