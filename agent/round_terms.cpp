#include "agent/round_terms.hpp"

#include "rendezvous/coordinator_client.hpp"

namespace acc::agent {

void RoundTerms::take(const rendezvous::RoundPlace& order) {
  place_ = Assignment{
      order.epoch.round, order.node_rank,
      order.nodes,       {order.first_rank, plan_.local_world_size},
      order.world_size,  {order.master.host, order.master.port, plan_.master.port_is_given}};
  max_restarts_ = order.max_restarts;
  restart_reason_ = order.reason;
  started_after_ = order.reason;
}

}  // namespace acc::agent
