#include "agent/delivered_signals.hpp"

#include "agent/signal_sender.hpp"

#include <catch2/catch.hpp>

#include <csignal>

using namespace acc;
using namespace acc::agent;
using From = DeliveredSignals::From;

TEST_CASE("under Slurm each worker got the pre-emption signal twice", "[agent]") {
  DeliveredSignals signals;
  const Instant begin{};
  const auto after = [&](int ms) { return begin + Millis{ms}; };
  SECTION("the agent's own one comes first") {
    CHECK(signals.take(SIGUSR1, From::manager, after(0)));
    CHECK_FALSE(signals.take(SIGUSR1, From::guardian, after(50)));
  }
  SECTION("the guardian's comes first") {
    CHECK(signals.take(SIGUSR1, From::guardian, after(0)));
    CHECK_FALSE(signals.when(SIGUSR1, after(0)));
    CHECK_FALSE(signals.take(SIGUSR1, From::manager, after(1)));
  }
  CHECK(signals.when(SIGUSR1, after(60)));
  CHECK_FALSE(signals.when(SIGTERM, after(60)));
  CHECK_FALSE(signals.when(SIGUSR1, after(60'000)));
  CHECK(signals.take(SIGUSR1, From::manager, after(70)));  // another one
  CHECK_FALSE(signals.take(SIGUSR1, From::guardian, after(120)));
  CHECK(signals.take(SIGUSR1, From::guardian, after(130)));  // of a person
}

TEST_CASE("a signal that only the launcher or the agent got is passed on each time", "[agent]") {
  DeliveredSignals signals;
  const Instant begin{};
  for (const auto from : {From::guardian, From::guardian, From::other, From::other})
    CHECK(signals.take(SIGTERM, from, begin));
  CHECK_FALSE(signals.when(SIGTERM, begin));
}

TEST_CASE("who signals all processes of a job is known by the program's name", "[agent]") {
  CHECK(signals_whole_jobs("slurmstepd"));
  CHECK(signals_whole_jobs("systemd"));
  for (const auto* name : {"bash", "pkill", "acc-launch", "slurmctld", ""})
    CHECK_FALSE(signals_whole_jobs(name));
}
