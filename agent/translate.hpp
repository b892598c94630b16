#pragma once

#include "agent/group_state.hpp"
#include "rendezvous/coordinator_client.hpp"

#include <optional>
#include <string>
#include <string_view>

/// Between the supervisor of this node and the coordinator of the job: orders become events,
/// failures become messages. Pure; the simulation uses it, too.
namespace acc::agent {

/// @param own_name  of this node
/// @return nothing: an order that the agent carries out without the supervisor
[[nodiscard]] std::optional<Event> event_of(const rendezvous::NodeOrder& order,
                                            std::string_view own_name, Instant now);

/// Where the workers of this node are in the job.
struct NodeFacts {
  RankRange ranks;
  std::string host;
};
/// Which worker failed and how; the caller adds the worker's output.
[[nodiscard]] rendezvous::Failure failure_of(const WorkerFailure& failure, const NodeFacts& node,
                                             Instant now);
[[nodiscard]] rendezvous::Failure failure_of(const StartFailure& failure, const NodeFacts& node);
/// A process of this node survived SIGKILL.
[[nodiscard]] rendezvous::Failure unkillable_failure(const NodeFacts& node);

/// What the coordinator reads of a node that ends before the job does.
/// @param why  the node's own reason; empty where there is none
[[nodiscard]] std::string leave_words(Outcome outcome, const std::string& why);

}  // namespace acc::agent
