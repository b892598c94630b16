#pragma once

#include "launcher/configure/other_launchers.hpp"

namespace acc::configure {

/// The command that is printed, or its file, counts workers as torchrun does. acc-launch then has
/// torchrun's defaults, too.
[[nodiscard]] bool counts_as_torchrun(const ForeignLine& line);

/// Puts into the file of a torchrun line what acc-launch wouldn't decide for the file as for the
/// line: the time from SIGTERM to SIGKILL, and settings of Accelerate that the caller's environment
/// holds, which a line of torchrun leaves alone and a file overrides. Keys that are set stay.
void put_torchrun_settings(ForeignLine& line, const launcher::Environment& environment);

}  // namespace acc::configure
