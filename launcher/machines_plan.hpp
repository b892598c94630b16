#pragma once

#include "agent/job_plan.hpp"
#include "launcher/host_facts.hpp"
#include "launcher/job_spec.hpp"

#include <optional>

namespace acc::launcher {

/// Machines, ranks and ports of a job with ranks: fills cluster, master, world size and this
/// machine's share.
Complaints plan_machines(const JobSpec& spec, HostFacts& facts, agent::JobPlan& plan);

/// The port alone, for the deepspeed program, which brings the machines together by itself.
Complaints plan_outer_port(const JobSpec& spec, HostFacts& facts, agent::JobPlan& plan);

/// Whether this machine may take part now: a secret where one is needed. Reads the secret's file.
Complaints check_machines(const JobSpec& spec, const agent::JobPlan& plan);

}  // namespace acc::launcher
