#pragma once

#include "launcher/ctl/command.hpp"

namespace acc::ctl {

/// acc-ctl's own exit codes; submit and attach end with the job's.
enum class CtlExit : int {
  done = 0,
  failed = 1,
  usage = 2,
  no_such_job = 3,
  no_service = 4,
  refused = 5,
};

/// Carries out a command without complaints. @return the exit code
int carry_out(const Command& command);

}  // namespace acc::ctl
