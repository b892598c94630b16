#pragma once

#include "launcher/ctl/command.hpp"

namespace acc::ctl::top {

/// acc-ctl top: until the user quits. @return the exit code
int run_top(const Command& command);

}  // namespace acc::ctl::top
