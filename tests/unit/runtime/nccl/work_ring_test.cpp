#include "runtime/nccl/work_ring.hpp"

#include "runtime/nccl/device.hpp"

#include <catch2/catch.hpp>

#include "fakes.hpp"

using namespace acc::runtime;
using namespace acc::runtime::nccl;
using acc::testing::Fakes;

namespace {

/// A ring whose calls are events on a stream of the fake, and nothing between them.
class Rig {
 public:
  Rig() : api_{cuda::library()}, ring_{api_}, stream_{api_} {}

  std::uint64_t call(std::uint64_t sequence, bool captured = false) {
    const auto events = ring_.begin({.what = {.sequence = sequence}}, captured);
    if (!captured) {
      cuda::check(api_, "record", api_.event_record(events.ready, stream_.get()));
      cuda::check(api_, "record", api_.event_record(events.end, stream_.get()));
    }
    ring_.enqueued();
    return ring_.last();
  }
  void finish() { cuda::check(api_, "synchronize", api_.stream_synchronize(stream_.get())); }
  WorkRing& ring() { return ring_; }

 private:
  const cuda::Api& api_;
  WorkRing ring_;
  cuda::OwnedStream stream_;
};

}  // namespace

SCENARIO("tickets count up, and what is done is known", "[runtime][nccl]") {
  const Fakes fakes;
  Rig rig;
  for (std::uint64_t i = 1; i <= 5; ++i) CHECK(rig.call(i) == i);
  rig.finish();
  CHECK(rig.ring().last_done() == 0);  // not queried yet
  CHECK(rig.ring().advance() == cuda::Status::success);
  CHECK(rig.ring().last_done() == 5);
  CHECK(rig.ring().last_started() == 5);
  CHECK(rig.ring().entry(3)->what.sequence == 3);
  CHECK_FALSE(rig.ring().entry(6));
  CHECK_FALSE(rig.ring().entry(0));
}

SCENARIO("asking about one call tells of all before it", "[runtime][nccl]") {
  const Fakes fakes;
  Rig rig;
  for (std::uint64_t i = 1; i <= 5; ++i) rig.call(i);
  rig.finish();
  CHECK(rig.ring().ask(4) == cuda::Status::success);
  CHECK(rig.ring().last_done() == 4);
}

SCENARIO("a call that is begun but not enqueued is not done, whatever its slot's events say",
         "[runtime][nccl]") {
  const Fakes fakes;
  Rig rig;
  for (std::uint64_t i = 1; i <= WorkRing::kSlots; ++i) rig.call(i);
  rig.finish();
  CHECK(rig.ring().full());
  CHECK(rig.ring().advance() == cuda::Status::success);
  CHECK_FALSE(rig.ring().full());
  const auto events = rig.ring().begin({.what = {.sequence = 9000}}, false);
  CHECK(events.end != nullptr);
  const auto ticket = rig.ring().last();
  CHECK(ticket == WorkRing::kSlots + 1);
  CHECK(rig.ring().ask(ticket) == cuda::Status::not_ready);
  CHECK(rig.ring().advance() == cuda::Status::success);
  CHECK(rig.ring().last_done() == WorkRing::kSlots);
  THEN("its slot's former call is forgotten") { CHECK_FALSE(rig.ring().entry(1)); }
  THEN("it can be withdrawn") {
    rig.ring().withdraw();
    CHECK(rig.ring().last() == WorkRing::kSlots);
    CHECK_FALSE(rig.ring().entry(ticket));
  }
}

SCENARIO("more calls than the ring remembers, over and over", "[runtime][nccl]") {
  const Fakes fakes;
  Rig rig;
  for (std::uint64_t i = 1; i <= 3 * WorkRing::kSlots + 7; ++i) {
    if (rig.ring().full()) {
      rig.finish();
      REQUIRE(rig.ring().advance() == cuda::Status::success);
    }
    REQUIRE(rig.call(i) == i);
  }
  rig.finish();
  CHECK(rig.ring().advance() == cuda::Status::success);
  CHECK(rig.ring().last_done() == 3 * WorkRing::kSlots + 7);
  CHECK(rig.ring().entry(3 * WorkRing::kSlots)->what.sequence == 3 * WorkRing::kSlots);
}

SCENARIO("calls captured into a graph delay no other", "[runtime][nccl]") {
  const Fakes fakes;
  Rig rig;
  rig.call(1);
  rig.call(2, true);
  rig.call(3, true);
  rig.finish();
  CHECK(rig.ring().ask(3) == cuda::Status::success);
  CHECK(rig.ring().last_done() == 3);
}
