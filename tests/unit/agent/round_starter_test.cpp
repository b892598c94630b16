#include "agent/round_starter.hpp"

#include "common/ports.hpp"

#include <boost/asio/io_context.hpp>
#include <catch2/catch.hpp>

#include <string>
#include <variant>

using namespace acc;
using namespace acc::agent;

namespace {

/// A node of a fixed job whose port another job of this machine has. Its program isn't there, so
/// nothing ever starts.
struct RefusedNode {
  boost::asio::io_context io{1};
  std::uint16_t port = pick_free_port();
  UniqueFd others = reserve_port(port);
  JobPlan plan = plan_with(port);
  GuardianLink guardian;
  ConsoleFacts console;
  DescriptorLimit descriptors;
  Containment containment;
  OutputHub output{io, plan.output, 1, console};
  RunFolder run_folder{plan.output, "test", "a", "x"};
  UserMessages messages{[](std::string_view) {}, plan.output, false};
  std::unique_ptr<Preloader> preloader;
  RoundStarter starter{RoundStarter::Tools{plan, guardian, console, descriptors, containment,
                                           output, run_folder, messages, preloader}};
  WorkerServices services{io, plan, "test", nullptr, messages, {}};

  static JobPlan plan_with(std::uint16_t port) {
    JobPlan plan;
    plan.kind = JobKind::process;
    plan.local_world_size = 1;
    plan.command = {"no-such-program"};
    plan.cluster.backend = Backend::fixed;
    plan.master.port = port;
    plan.master.port_is_given = true;
    return plan;
  }
  /// Which step of the start failed.
  std::string start_as(NodeRank node) {
    RoundStarter::Order order;
    order.place = Assignment{Round{0}, node, 2, {Rank{node.value()}, 1}, WorldSize{2}, plan.master};
    const auto prepared = starter.prepare(order, services);
    const auto* failure = std::get_if<StartFailure>(&prepared);
    REQUIRE(failure != nullptr);
    return failure->step;
  }
};

}  // namespace

TEST_CASE("a port in use refused the workers of a node that no longer was the first", "[agent]") {
  RefusedNode node;
  REQUIRE(node.others);
  CHECK(node.starter.reserve_store_port(Round{0}) != node.port);
  CHECK(node.start_as(NodeRank{1}) == "exec");
  CHECK(node.start_as(NodeRank{0}) == "exec");  // of a round whose port wasn't reserved here
  CHECK(node.starter.reserve_store_port(Round{0}) != node.port);
  CHECK(node.start_as(NodeRank{0}) == "port");
}
