#include "agent/daemon/signal_loop.hpp"

#include <catch2/catch.hpp>

#include <chrono>
#include <csignal>
#include <new>
#include <vector>

using namespace acc::agent::daemon;

TEST_CASE("after a SIGHUP whose handler had thrown, SIGTERM didn't end the daemon", "[daemon]") {
  boost::asio::io_context io{1};
  std::vector<int> seen;
  SignalLoop loop{io, {SIGHUP, SIGTERM}, [&](int signo) {
                    seen.push_back(signo);
                    if (signo == SIGHUP) throw std::bad_alloc{};
                  }};
  REQUIRE(::raise(SIGHUP) == 0);
  CHECK_FALSE(loop.is_waiting());
  loop.start();
  const auto run = [&] { io.run_for(std::chrono::seconds{20}); };
  CHECK_THROWS_AS(run(), std::bad_alloc);
  CHECK(loop.is_waiting());
  REQUIRE(::raise(SIGTERM) == 0);
  while (seen.size() < 2 && io.run_one_for(std::chrono::seconds{20}) > 0) continue;
  CHECK(seen == std::vector<int>{SIGHUP, SIGTERM});
}
