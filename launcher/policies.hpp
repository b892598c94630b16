#pragma once

#include "agent/job_plan.hpp"
#include "launcher/config.hpp"
#include "launcher/job_spec.hpp"

namespace acc::launcher {

/// The parts of a plan that are settings of our own: restart, stop, output, report, stdin.
void plan_policies(const JobSpec& spec, const Environment& environment, agent::JobPlan& plan,
                   Complaints& complaints);

/// --tee, --redirects, --local_ranks_filter and --stdin must name ranks of this machine.
Complaints check_local_ranks(const JobSpec& spec, const agent::JobPlan& plan);

}  // namespace acc::launcher
