#pragma once

#include "agent/guardian.hpp"
#include "agent/job_plan.hpp"

namespace acc::agent {

/// Runs the job to its end on this node: starts the workers, supervises, restarts, reports.
/// @return  the exit code of the whole job (docs/exit-codes.md). Blocks; call in the agent process
/// of run_guarded.
int run(const JobPlan& plan, const GuardianLink& guardian);

}  // namespace acc::agent
