#pragma once

#include "agent/report.hpp"
#include "agent/worker_group.hpp"
#include "common/worker_socket.hpp"
#include "rendezvous/messages.hpp"

#include <vector>

/// What the remaining workers learn of lost ranks (pure). The text goes into the message of the
/// exception that a broken collective throws.
namespace acc::agent {

/// One of this node.
[[nodiscard]] worker_socket::LostRank lost_here(const WorkerRecord& worker, const OomFacts& oom);
/// Those of all nodes, as the coordinator says with its order to stop; none if it stops for another
/// reason.
[[nodiscard]] std::vector<worker_socket::LostRank> lost_by(const rendezvous::Stop& stop);

}  // namespace acc::agent
