#pragma once

#include "agent/job_plan.hpp"
#include "launcher/job_spec.hpp"

namespace acc::launcher {

/// How the machines of a job with ranks find and watch each other: fills plan.cluster from the
/// settings and from what plan_rendezvous has filled. Pure.
Complaints plan_cluster(const JobSpec& spec, agent::JobPlan& plan);

/// Whether this machine may take part now: a secret where one is needed. Reads the secret's file.
Complaints check_cluster(const JobSpec& spec, const agent::JobPlan& plan);

/// The port of the coordinator that this machine hosts or dials; with `static` the one beside
/// main_process_port. Nothing with etcd.
std::optional<std::int64_t> control_port(const JobSpec& spec, const agent::JobPlan& plan);

/// One word for static, c10d, tcp and so on; nothing for an unknown one.
std::optional<agent::Backend> backend_of(const std::string& name);

}  // namespace acc::launcher
