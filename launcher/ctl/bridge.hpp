#pragma once

#include <span>
#include <string>

namespace acc::ctl {

/// `acc-ctl bridge`, which acc-launch --hosts starts for each host where daemons run the job: stdin
/// is a life line (agent/fanout/orders.hpp), stdout and stderr are those of the job there.
/// @param words  behind the verb
/// @return 0: the job's end was reported, or it was left; else why not, as acc-launch's exit codes
int run_bridge(std::span<const std::string> words);

}  // namespace acc::ctl
