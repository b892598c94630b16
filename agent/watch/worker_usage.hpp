#pragma once

#include "agent/watch/stall_detector.hpp"

#include <vector>

namespace acc::agent {

struct WorkerRecord;

/// Of the living ones, in their order, from /proc. What can't be read counts as nothing.
[[nodiscard]] std::vector<WorkerUsage> usage_of(const std::vector<WorkerRecord>& workers);

}  // namespace acc::agent
