#pragma once

#include "launcher/configure/command.hpp"

namespace acc::configure {

/// `acc-config convert`: a command line, or a file for FSDP 1, to a config file. @return exit code
int convert(const Command& command);

}  // namespace acc::configure
