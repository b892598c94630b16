#pragma once

#include "agent/job_plan.hpp"
#include "launcher/job_spec.hpp"

#include <string>

namespace acc::launcher {

/// The plan as JSON, for --print_plan: kind, env, command, launch (jobs with ranks only),
/// defaulted, as the recorded cases of the original have them; then restart, stop, output,
/// world_size and the rest of what will be done. What only torchrun's launch
/// parameters say, such as the endpoint's spelling, is read from the settings.
[[nodiscard]] std::string plan_to_json(const JobSpec& spec, const agent::JobPlan& plan);

}  // namespace acc::launcher
