#pragma once

#include "launcher/config.hpp"
#include "launcher/host_facts.hpp"
#include "launcher/job_spec.hpp"

namespace acc::launcher {

/// Fills what the command line and the config file leave open with what a scheduler says, and tells
/// so. A job that they call one machine stays one.
void apply_scheduler(JobSpec& spec, Complaints& complaints, HostFacts& facts,
                     const Environment& environment);

}  // namespace acc::launcher
