#include "agent/daemon/signal_loop.hpp"

#include <catch2/catch.hpp>

#include <chrono>
#include <csignal>
#include <new>
#include <vector>

using namespace acc::agent::daemon;

namespace {

class PoorLoop : public SignalLoop {
 public:
  using SignalLoop::SignalLoop;
  bool is_memory_short = false;

 private:
  void wait() override {
    if (is_memory_short) throw std::bad_alloc{};
    SignalLoop::wait();
  }
};

}  // namespace

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

TEST_CASE("a SIGTERM was lost where there was no memory to wait for the next signal", "[daemon]") {
  boost::asio::io_context io{1};
  std::vector<int> seen;
  PoorLoop loop{io, {SIGTERM}, [&](int signo) { seen.push_back(signo); }};
  loop.start();
  loop.is_memory_short = true;
  REQUIRE(::raise(SIGTERM) == 0);
  const auto run = [&] { io.run_for(std::chrono::seconds{20}); };
  CHECK_THROWS_AS(run(), std::bad_alloc);
  CHECK(seen == std::vector<int>{SIGTERM});
  CHECK_FALSE(loop.is_waiting());
}
