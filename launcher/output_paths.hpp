#pragma once

#include "agent/job_plan.hpp"
#include "common/error.hpp"

#include <string>
#include <vector>

namespace acc::launcher {

/// Where --log_dir and --report can't be written: told before the start, not after days. A disk
/// that is full or read-only is no complaint: it may be so only for now, and workers go on without
/// logs. Makes the folder of the logs, and notes in the plan where that was told.
/// @param has_output  whether the caller left us a standard output
Complaints check_output_paths(agent::JobPlan& plan, bool has_output,
                              std::vector<std::string>& warnings);

/// Whether a report can be written to `path` at the end: 0, or errno. It opens no pipe, whose
/// reader would see its end.
[[nodiscard]] int why_no_file(const std::string& path);

}  // namespace acc::launcher
