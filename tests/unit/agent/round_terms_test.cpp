#include "agent/round_terms.hpp"

#include "rendezvous/coordinator_client.hpp"

#include <catch2/catch.hpp>

using namespace acc;
using namespace acc::agent;

TEST_CASE("a node's place in a round is the plan's until the coordinator orders one",
          "[agent][terms]") {
  JobPlan plan;
  plan.world_size = WorldSize{6};
  plan.local_world_size = 2;
  plan.restart.max_restarts = 3;
  RoundTerms terms{plan};
  CHECK_FALSE(terms.place());
  CHECK(terms.world_size() == WorldSize{6});
  CHECK(terms.nodes() == 1);
  CHECK(terms.node_rank() == NodeRank{0});
  CHECK(terms.max_restarts() == 3);
  terms.set_restart_reason("rank 1 exited with code 1");
  CHECK(terms.started_after().empty());

  rendezvous::RoundPlace order;
  order.epoch.round = Round{4};
  order.node_rank = NodeRank{1};
  order.nodes = 2;
  order.first_rank = Rank{2};
  order.world_size = WorldSize{4};
  order.max_restarts = 9;
  order.reason = "node b was lost";
  terms.take(order);
  REQUIRE(terms.place());
  CHECK(terms.place()->round == Round{4});
  CHECK(terms.place()->ranks.first == Rank{2});
  CHECK(terms.place()->ranks.count == 2);
  CHECK(terms.world_size() == WorldSize{4});
  CHECK(terms.nodes() == 2);
  CHECK(terms.node_rank() == NodeRank{1});
  CHECK(terms.max_restarts() == 9);
  CHECK(terms.restart_reason() == "node b was lost");
  CHECK(terms.started_after() == "node b was lost");

  // The end of that round is why the next one would start: a last one was told as its own cause.
  terms.set_restart_reason("rank 0 on a exited with code 5");
  CHECK(terms.restart_reason() == "rank 0 on a exited with code 5");
  CHECK(terms.started_after() == "node b was lost");
}
