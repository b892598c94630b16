#pragma once

#include "launcher/configure/command.hpp"

/// The verbs that read or write one config file; each returns the exit code.
namespace acc::configure {

int write_default(const Command& command);
int update(const Command& command);
int check(const Command& command);
int show(const Command& command);
int make_secret(const Command& command);

}  // namespace acc::configure
