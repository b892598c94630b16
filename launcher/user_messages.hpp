#pragma once

#include "launcher/cli.hpp"
#include "launcher/job_spec.hpp"

#include <string>
#include <string_view>

/// What acc-launch writes before the agent takes over: complaints, warnings and notes on stderr.
namespace acc::launcher {

/// All of `text`, also through a slow pipe; 0, or why not.
int write_all(int fd, std::string_view text);

/// "acc-launch: LINE" on stderr.
void tell(const std::string& line);

/// All complaints on stderr, in the order of the config file `file`'s lines. @return the exit code:
/// 2 if something is wrong that the user wrote, 1 if all of it is what this machine lacks.
int tell_complaints(Complaints complaints, const std::string& file);

/// The words that the original says, with --quiet too; scripts look for them. What only Python
/// heeds is not worth a line to a binary; a shell script may have Python behind it.
std::string defaults_warning(const JobSpec& spec, bool without_python);

void tell_about_ignored(const CommandLine& line);

}  // namespace acc::launcher
