#include "rendezvous/dial_sequence.hpp"

#include <catch2/catch.hpp>

using namespace acc;
using namespace acc::rendezvous;

namespace {
HostPort target(int node) { return {"10.0.0." + std::to_string(node), 29500}; }
const std::vector<HostPort> kTargets{target(1), target(2)};
constexpr Millis kHeartbeatTimeout{5'000};
}  // namespace

TEST_CASE("targets are tried in turn, without a pause until each was tried",
          "[rendezvous][dial_sequence]") {
  DialSequence dials{7};
  CHECK(dials.choose(kTargets, true) == true);
  CHECK(dials.chosen() == target(1));
  dials.failed();
  CHECK(dials.has_untried(kTargets));
  CHECK(dials.choose(kTargets, true) == false);
  CHECK(dials.chosen() == target(2));
  dials.failed();
  CHECK_FALSE(dials.has_untried(kTargets));
  SECTION("another first target begins anew") {
    const std::vector<HostPort> other{target(3), target(1)};
    CHECK(dials.has_untried(other));
    CHECK(dials.choose(other, true) == true);
    CHECK(dials.chosen() == target(3));
  }
  SECTION("without any there is nothing to choose") { CHECK_FALSE(dials.choose({}, true)); }
}

TEST_CASE("a redirect is followed once, and many in a row are a cycle",
          "[rendezvous][dial_sequence]") {
  DialSequence dials{7};
  for (int i = 0; i < 4; ++i) {
    CHECK(dials.redirected(target(5)));
    CHECK(dials.choose(kTargets, true) == true);
    CHECK(dials.chosen() == target(5));
  }
  CHECK_FALSE(dials.redirected(target(5)));
  CHECK_FALSE(dials.redirected(std::nullopt));
  CHECK(dials.redirected(target(6)));
  SECTION("but not by an agent whose coordinator is in its own process") {
    CHECK(dials.choose(kTargets, false) == true);
    CHECK(dials.chosen() == target(1));
  }
}

TEST_CASE("pauses double up to a second, and are short at the start of a launch",
          "[rendezvous][dial_sequence]") {
  DialSequence dials{7};
  for (const int ceiling : {50, 100, 200, 400, 800, 1'000, 1'000}) {
    const auto pause = dials.backoff(false, kHeartbeatTimeout);
    CHECK(pause >= Millis{ceiling / 2});
    CHECK(pause <= Millis{ceiling});
    dials.failed();
  }
  dials.restart_pauses();
  CHECK(dials.backoff(true, kHeartbeatTimeout) <= Millis{10});
}

TEST_CASE(
    "a lost coordinator gets less time than the first target, and a slow network gets three round "
    "trips",
    "[rendezvous][dial_sequence]") {
  DialSequence dials{7};
  CHECK(dials.limit(false, true, kHeartbeatTimeout, Millis{0}) == Millis{2'500});
  CHECK(dials.limit(false, false, kHeartbeatTimeout, Millis{0}) == Millis{1'000});
  CHECK(dials.limit(false, false, kHeartbeatTimeout, Millis{900}) == Millis{2'700});
  CHECK(dials.limit(true, true, kHeartbeatTimeout, Millis{0}) == Millis{3'000});
  dials.failed();
  CHECK(dials.limit(true, true, kHeartbeatTimeout, Millis{0}) == Millis{6'000});
}
