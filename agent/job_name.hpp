#pragma once

#include "agent/job_plan.hpp"

#include <string>

namespace acc::agent {

/// Whether nobody chose this name: "none", the default of --rdzv_id, or one of the launcher's own,
/// for
/// --standalone or where the port of another job is taken: "39ba0dec-b767-4bee-9e03-fca6e6bcdcb6".
[[nodiscard]] bool is_made_up(const std::string& job);

/// The name that --rdzv_id gave, else the script's.
[[nodiscard]] std::string job_name(const JobPlan& plan);

/// Three hexadecimal digits of the script's path and arguments: they tell most jobs of one script
/// name apart, and so few that files which are named by them stay few.
[[nodiscard]] std::string command_mark(const JobPlan& plan);

}  // namespace acc::agent
