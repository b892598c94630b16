#include "agent/supervisor_timers.hpp"

#include <catch2/catch.hpp>

#include <thread>
#include <vector>

using namespace acc;
using namespace acc::agent;

TEST_CASE("a timer of the supervisor fires once, and not after it was disarmed", "[agent]") {
  boost::asio::io_context io{1};
  std::vector<Timer> fired;
  SupervisorTimers timers{io, [&](Timer timer) { fired.push_back(timer); }};
  timers.arm(Timer::grace, Millis{0});
  timers.arm(Timer::grace, Millis{1});  // anew
  timers.arm(Timer::give_up, Millis{0});
  timers.disarm(Timer::give_up);
  timers.arm(Timer::backoff, Millis{2});
  CHECK(timers.expiry(Timer::backoff) > timers.expiry(Timer::grace));
  io.run_for(std::chrono::seconds{10});
  CHECK(fired == std::vector<Timer>{Timer::grace, Timer::backoff});
}

TEST_CASE("a grace that was renewed as it expired killed at once", "[agent]") {
  boost::asio::io_context io{1};
  std::vector<Timer> fired;
  SupervisorTimers timers{io, [&](Timer timer) {
                            fired.push_back(timer);
                            if (timer == Timer::backoff) timers.arm(Timer::grace, Millis{100'000});
                          }};
  timers.arm(Timer::backoff, Millis{0});
  timers.arm(Timer::grace, Millis{1});
  std::this_thread::sleep_until(timers.expiry(Timer::grace));
  io.poll();  // takes both as expired before it calls the first
  CHECK(fired == std::vector<Timer>{Timer::backoff});
}
