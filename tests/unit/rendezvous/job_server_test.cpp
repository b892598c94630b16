#include "rendezvous/job_server.hpp"

#include "tests/unit/rendezvous/net_tools.hpp"

#include <catch2/catch.hpp>

using namespace acc;
using namespace acc::rendezvous;
using namespace acc::rendezvous::test;

namespace {

Join join_of(const std::string& job) {
  Join join;
  join.job = job;
  join.node = {"a", 1};
  join.slots = 1;
  join.nodes_min = join.nodes_max = 2;
  join.policy = JobPolicy{};
  return join;
}

}  // namespace

TEST_CASE("acc-rendezvous kept each job that its nodes left before the first round",
          "[rendezvous][job_server]") {
  constexpr int kJobs = 1'000;
  Loop loop;
  JobServerOptions options;
  options.at.port = 0;
  options.is_insecure = true;
  options.timings = {Millis{250}, Millis{500}};
  JobServer server{loop.io, options, [](const std::string&) {}};
  REQUIRE(server.open({"127.0.0.1"}) == 0);
  const auto joins = [&](const std::string& job) {
    auto how = dial_to(server.at());
    how.is_insecure = true;
    return std::make_unique<Guest>(loop, how, encode({}, join_of(job)));
  };
  const auto staying = joins("staying");
  REQUIRE(loop.until([&] { return !staying->frames.empty(); }));
  Instant beats_at{};
  const auto keep_alive = [&] {
    if (clock_now() < beats_at) return;
    beats_at = clock_now() + Millis{50};
    staying->channel->send(encode({{1, 0}, Round{0}}, Heartbeat{.heartbeat = 1}));
  };
  for (int i = 0; i < kJobs; ++i) {
    keep_alive();
    const auto guest = joins("job-" + std::to_string(i));
    REQUIRE(loop.until([&] { return !guest->frames.empty(); }));
  }
  CHECK(loop.until([&] {
    keep_alive();
    return server.jobs() == 1;
  }));
  CHECK(staying->closed.empty());
}
