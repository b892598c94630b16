#pragma once

#include "launcher/ctl/command.hpp"
#include "launcher/ctl/outcome.hpp"

namespace acc::ctl {

/// Carries out a command without complaints. @return the exit code
int carry_out(const Command& command);

}  // namespace acc::ctl
