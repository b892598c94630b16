#pragma once

#include "agent/job_plan.hpp"
#include "launcher/host_facts.hpp"
#include "launcher/job_spec.hpp"

#include <optional>

namespace acc::launcher {

/// Machines, ranks and ports of a job with ranks: fills rendezvous, master, world size and this
/// machine's share.
Complaints plan_rendezvous(const JobSpec& spec, HostFacts& facts, agent::JobPlan& plan);

/// The port alone, for the deepspeed program, which brings the machines together by itself.
Complaints plan_outer_port(const JobSpec& spec, HostFacts& facts, agent::JobPlan& plan);

/// What is wrong with --main_process_port or the port of the endpoint as a number, if anything is.
std::optional<Error> bad_main_port(const JobSpec& spec);

}  // namespace acc::launcher
