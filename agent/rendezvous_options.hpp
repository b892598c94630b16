#pragma once

#include "agent/job_plan.hpp"
#include "common/unique_fd.hpp"
#include "rendezvous/rendezvous_client.hpp"

#include <string>

/// Derives the options of the rendezvous from the plan of a job on several nodes.
namespace acc::agent {

/// This node's name in the job. By default the host's name, unless the same job has another agent
/// on this host.
struct NodeName {
  std::string name;
  std::string if_taken;  ///< if another machine has that name; empty: the user gave the name
  UniqueFd reservation;  ///< of the name on this host, while the agent lives
};
[[nodiscard]] NodeName choose_node_name(const Cluster& cluster, const std::string& host);

/// @return an error if the secret can't be read or an address of etcd is none.
[[nodiscard]] Result<rendezvous::RendezvousClientOptions> rendezvous_options(
    const JobPlan& plan, const std::string& host, const NodeName& node);

}  // namespace acc::agent
