#include "agent/lease_terms.hpp"

#include <catch2/catch.hpp>

using namespace acc;
using namespace acc::agent;
using namespace std::chrono_literals;
using std::chrono::nanoseconds;

namespace {

/// A node that booted 5 h ago and slept for an hour of that, one second after its lease of 10 s was
/// confirmed.
struct Machine {
  nanoseconds boot = 5h;
  nanoseconds monotonic = 4h;
  nanoseconds realtime = 20'000h;
  LeaseTerms terms{nanoseconds{5h + 10s}.count(), nanoseconds{19'995h}.count()};

  void passes(nanoseconds time) {
    boot += time;
    monotonic += time;
    realtime += time;
  }
  [[nodiscard]] LeaseState judge() const {
    return judge_lease(terms, {Instant{boot}, monotonic, realtime});
  }
};

}  // namespace

SCENARIO("a lease is judged by all clocks of the machine", "[agent][lease]") {
  Machine node;
  node.passes(1s);
  REQUIRE(node.judge() == LeaseState::holds);
  WHEN("its time has passed") {
    node.passes(9s);
    THEN("it is over") { CHECK(node.judge() == LeaseState::over); }
  }
  WHEN("the machine was suspended beyond its end: only the monotonic clock stood still") {
    node.boot += 20s;
    node.realtime += 20s;
    THEN("it is over") { CHECK(node.judge() == LeaseState::over); }
  }
  WHEN("the machine was suspended for a moment") {
    node.boot += 3s;
    node.realtime += 3s;
    THEN("it holds") { CHECK(node.judge() == LeaseState::holds); }
  }
  WHEN("a virtual machine was paused, and only its wall clock has been set right since") {
    node.realtime += 20s;
    THEN("nobody can tell that from a clock that was set: it must be confirmed") {
      CHECK(node.judge() == LeaseState::doubted);
    }
    AND_WHEN("it was confirmed after that") {
      node.terms.ahead_ns = nanoseconds{node.realtime - node.boot}.count();
      THEN("it holds") { CHECK(node.judge() == LeaseState::holds); }
    }
  }
  WHEN("the clock by which leases are measured stood still alone") {
    node.monotonic += 20s + 20'000h;
    THEN("it must be confirmed") { CHECK(node.judge() == LeaseState::doubted); }
  }
  WHEN("NTP sets the wall clock back") {
    node.realtime -= 1h;
    THEN("it holds") { CHECK(node.judge() == LeaseState::holds); }
  }
  WHEN("NTP slews it") {
    node.realtime += 5ms;
    THEN("it holds") { CHECK(node.judge() == LeaseState::holds); }
  }
  WHEN("there is no lease") {
    node.terms = {};
    THEN("nothing is judged") { CHECK(node.judge() == LeaseState::none); }
  }
}

TEST_CASE("a clock watch tells of each step forward once", "[common][clocks]") {
  Machine node;
  const auto clocks = [&] { return Clocks{Instant{node.boot}, node.monotonic, node.realtime}; };
  ClockWatch watch{clocks()};
  node.passes(1h);
  CHECK_FALSE(watch.look(clocks()));
  node.realtime += 20s;
  CHECK(watch.look(clocks()) == Millis{20s});
  CHECK_FALSE(watch.look(clocks()));
  node.realtime -= 1h;
  CHECK_FALSE(watch.look(clocks()));
  node.realtime += 400ms;
  CHECK_FALSE(watch.look(clocks()));
}

TEST_CASE("the clocks of this machine agree with themselves", "[common][clocks]") {
  ClockWatch watch{read_clocks()};
  for (int i = 0; i < 1'000; ++i) CHECK_FALSE(watch.look(read_clocks()));
}
