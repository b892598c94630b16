#pragma once

#include "agent/job_plan.hpp"

#include <string>

namespace acc::agent {

/// The name that --rdzv_id gave, else the script's.
[[nodiscard]] std::string job_name(const JobPlan& plan);

}  // namespace acc::agent
