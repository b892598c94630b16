#pragma once

#include "launcher/ctl/invocation.hpp"
#include "launcher/ctl/job_list.hpp"

/// The verbs that look: tables for people, or --json. Each returns the exit code.
namespace acc::ctl {

int show_jobs(const Invocation& call);
int show_status(const Invocation& call, const JobRow& job);
int show_status(const Invocation& call, const LaunchState& launch);
/// Where its workers are: their stacks, of all nodes of a launch.
int show_stacks(const JobRow& job);
int show_stacks(const LaunchState& launch);
int show_node(const Invocation& call);
/// All of the cluster.
int show_nodes(const Invocation& call);
int show_events(const Invocation& call);

}  // namespace acc::ctl
