#pragma once

#include "launcher/ctl/follow.hpp"
#include "launcher/ctl/invocation.hpp"
#include "launcher/ctl/job_list.hpp"

#include <string>

/// What jobs wrote, and write: logs, attach. Each returns the exit code.
namespace acc::ctl {

int show_output(const Invocation& call, const JobRow& job);
/// Of all its nodes.
int show_output(const Invocation& call, const LaunchState& launch);

/// `id`: of the job that goes on when we leave; empty: that isn't said.
int code_of(const Followed& end, const std::string& id);

}  // namespace acc::ctl
