#pragma once

#include "agent/job_plan.hpp"
#include "launcher/job_spec.hpp"

#include <map>
#include <optional>
#include <string>

namespace acc::launcher {

/// One word for static, c10d, tcp and so on; nothing for an unknown one.
std::optional<agent::Backend> backend_of(const std::string& name);

/// The port of the coordinator that this machine hosts or dials; with `static` the one beside
/// main_process_port. Nothing with etcd.
std::optional<std::int64_t> control_port(const JobSpec& spec, const agent::JobPlan& plan);

/// torchrun's rdzv_endpoint: "HOST:PORT", with etcd maybe several of them.
std::string rendezvous_endpoint(const JobSpec& spec, const agent::JobPlan& plan);

/// Options of --rdzv_conf that can't be read, on one machine too; and --rdzv_endpoint where
/// plan_coordinator has no part in it.
Complaints check_rendezvous(const JobSpec& spec);

/// Address, place and times of the coordinator of a job on several machines: fills these fields
/// of plan.cluster, whose counts, ranks and backend are there. `conf` is
/// --rdzv_conf, of which check_rendezvous has told what is wrong. Pure.
void plan_coordinator(const JobSpec& spec, const std::map<std::string, std::string>& conf,
                      agent::JobPlan& plan, Complaints& complaints);

}  // namespace acc::launcher
