#include "rendezvous/heartbeat_log.hpp"

#include "rendezvous/worker_lease.hpp"

#include <catch2/catch.hpp>

using namespace acc;
using namespace acc::rendezvous;

namespace {
const Instant kThen{Millis{1'000}};
}

TEST_CASE("a heartbeat counts from when it was sent, unless it is too old or was never sent",
          "[rendezvous][heartbeat_log]") {
  HeartbeatLog log;
  CHECK_FALSE(log.sent_at(0));  // an answer to none
  const auto first = log.send(kThen);
  CHECK(log.sent_at(first) == kThen);
  CHECK(log.round_trip_of(first, kThen + Millis{7}) == Millis{7});
  CHECK_FALSE(log.sent_at(first + 1));
  SECTION("after 64 others") {
    for (int i = 0; i < 64; ++i) log.send(kThen + Millis{i});
    CHECK_FALSE(log.sent_at(first));
  }
  SECTION("after a doubt about the clock") {
    log.forget();
    CHECK_FALSE(log.sent_at(first));
  }
}

TEST_CASE("the round trip stays close to the shortest recent one", "[rendezvous][heartbeat_log]") {
  HeartbeatLog log;
  log.answered(0, kThen);  // to a heartbeat that was never sent
  CHECK(log.round_trip() == Millis{0});
  const auto answer = [&](int took) { log.answered(log.send(kThen), kThen + Millis{took}); };
  answer(80);
  CHECK(log.round_trip() == Millis{80});
  answer(5'000);  // a pause of either side
  CHECK(log.round_trip() == Millis{91});
  answer(16);
  CHECK(log.round_trip() == Millis{16});
}

TEST_CASE("a lease moves to later ends only, but for a doubt, which a later end removes",
          "[rendezvous][worker_lease]") {
  WorkerLease lease;
  CHECK_FALSE(lease.is_valid(kThen));
  CHECK_FALSE(lease.is_over(kThen));  // there is none
  CHECK_FALSE(lease.doubt(kThen));
  CHECK(lease.extend(kThen + Millis{10}));
  CHECK_FALSE(lease.extend(kThen + Millis{10}));
  CHECK(lease.is_valid(kThen + Millis{9}));
  CHECK(lease.is_over(kThen + Millis{10}));
  CHECK_FALSE(lease.doubt(kThen + Millis{10}));
  CHECK(lease.doubt(kThen + Millis{5}));
  CHECK(lease.is_doubted());
  CHECK(lease.is_over(kThen + Millis{5}));
  CHECK(lease.extend(kThen + Millis{20}));
  CHECK_FALSE(lease.is_doubted());
}
