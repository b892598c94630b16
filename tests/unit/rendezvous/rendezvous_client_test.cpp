#include "rendezvous/rendezvous_client.hpp"

#include "tests/unit/rendezvous/net_tools.hpp"

#include <catch2/catch.hpp>

using namespace acc;
using namespace acc::rendezvous;
using namespace acc::rendezvous::test;
using Catch::Contains;

namespace {

std::uint16_t free_port(Loop& loop) { return Host{loop, plain_at()}.at().port; }

/// The first node of a job of two, which waits for the other one.
struct FirstNode {
  Loop loop;
  HostPort at{"127.0.0.1", free_port(loop)};
  std::string told;
  std::string cannot;
  std::unique_ptr<RendezvousClient> client;

  FirstNode() {
    RendezvousClientOptions options;
    auto& self = options.client.self;
    self.job = options.membership.job = "job";
    self.node = {"a", 1};
    self.slots = 1;
    self.nodes_min = self.nodes_max = self.nodes = 2;
    self.policy = JobPolicy{};
    options.membership.nodes_min = options.membership.nodes_max = 2;
    options.client.seed_endpoint = at;
    options.client.serves_seed = true;
    options.serve_seed = ServeSeed::must;
    options.listen_tls = TlsContext::for_listening(secret());
    options.dial_tls = TlsContext::for_dialling(secret(), "job");
    client = std::make_unique<RendezvousClient>(loop.io, std::move(options),
                                                [this](const NodeOrder& order) {
                                                  if (const auto* tell = std::get_if<Tell>(&order))
                                                    told += tell->text + "\n";
                                                });
    client->begin([this](const Error& error) { cannot = error.what; });
    REQUIRE(loop.until([&] { return client->is_connected(); }));
  }
};

std::string moved() { return encode({}, LeaderMoved{"job", {"127.0.0.1", 9}}); }

}  // namespace

TEST_CASE("a process with the key of another job could send a job's nodes elsewhere",
          "[rendezvous][client]") {
  FirstNode node;
  const Guest other{node.loop, dial_to(node.at, secret(), "other"), moved()};
  REQUIRE(node.loop.until([&] { return node.told.find("turned away") != std::string::npos; }));
  CHECK_THAT(node.told, Contains("its key is for another job"));
  CHECK(node.client->is_connected());
  const Guest own{node.loop, dial_to(node.at, secret(), "job"), moved()};
  CHECK(node.loop.until([&] { return !node.client->is_connected(); }));
}
