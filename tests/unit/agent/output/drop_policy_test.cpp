#include "agent/output/drop_policy.hpp"

#include <catch2/catch.hpp>

#include <ostream>
#include <vector>

using namespace acc;
using acc::agent::DropPolicy;
using Origin = DropPolicy::Origin;
using Verdict = DropPolicy::Verdict;

namespace acc::agent {
std::ostream& operator<<(std::ostream& out, DropPolicy::Verdict verdict) {
  return out << (verdict == Verdict::accept ? "accept"
                 : verdict == Verdict::hold ? "hold"
                                            : "drop");
}
}  // namespace acc::agent

namespace {

constexpr Instant kStart{std::chrono::hours{100}};
Instant at(int ms) { return kStart + Millis{ms}; }

struct Step {
  int now_ms;
  std::size_t queued;
  int progress_ms;  // when its destination last moved
  Verdict expected;
};

void check(const std::vector<Step>& steps) {
  DropPolicy policy{{.queue_bytes = 1000, .patience = Millis{60'000}}};
  for (const Step& step : steps) {
    CAPTURE(step.now_ms, step.queued, step.progress_ms);
    CHECK(policy.ask(at(step.now_ms), {step.queued, at(step.progress_ms)}) == step.expected);
  }
}

}  // namespace

TEST_CASE("a queue with room accepts, however long its destination stands still", "[agent][output]") {
  check({{0, 0, -9000, Verdict::accept}, {500'000, 999, -9000, Verdict::accept}});
}

TEST_CASE("a full queue holds the workers for its patience, then drops", "[agent][output]") {
  check({{0, 1000, -500'000, Verdict::hold},
         {59'999, 1000, -500'000, Verdict::hold},
         {60'000, 1000, -500'000, Verdict::drop},
         {500'000, 1000, -500'000, Verdict::drop}});
}

TEST_CASE("after Ctrl-Z and fg output was lost, as if the suspended reader had been stuck",
          "[agent][output]") {
  DropPolicy policy{{.queue_bytes = 1000, .patience = Millis{60'000}}};
  CHECK(policy.ask(at(0), {1000, at(-1)}) == Verdict::hold);
  SECTION("we are told") {
    policy.suspend();
    CHECK(policy.ask(at(60'000), {1000, at(-1)}) == Verdict::hold);
    CHECK(policy.ask(at(120'000), {1000, at(-1)}) == Verdict::hold);
    policy.resume();
    CHECK(policy.ask(at(500'000), {1000, at(-1)}) == Verdict::hold);
    CHECK(policy.hold_until() == at(560'000));
    CHECK(policy.ask(at(560'000), {1000, at(-1)}) == Verdict::drop);
  }
  SECTION("we stood still ourselves, and the timer comes late") {
    CHECK(policy.ask(at(66'000), {1000, at(-1)}) == Verdict::hold);
    CHECK(policy.hold_until() == at(126'000));
    CHECK(policy.ask(at(126'100), {1000, at(-1)}) == Verdict::drop);
  }
}

TEST_CASE("a reader that pauses for seconds, again and again, loses nothing", "[agent][output]") {
  check({{0, 1000, 0, Verdict::hold},
         {10'000, 500, 9'999, Verdict::accept},
         {10'001, 1000, 9'999, Verdict::hold},
         {69'000, 1000, 9'999, Verdict::hold},
         {69'001, 900, 69'000, Verdict::accept},
         {69'002, 1000, 69'000, Verdict::hold},
         {128'999, 1000, 69'000, Verdict::hold}});
}

TEST_CASE("a sink that takes a byte a minute may hold the workers for ever", "[agent][output]") {
  DropPolicy policy{{.queue_bytes = 1000, .patience = Millis{60'000}}};
  for (int minute = 0; minute < 1000; ++minute) {
    const int now = minute * 59'000;
    CHECK(policy.ask(at(now), {1000, at(now - 59'000)}) == Verdict::hold);
  }
}

TEST_CASE("dropping ends as soon as the sink moves", "[agent][output]") {
  check({{0, 1000, 0, Verdict::hold},
         {60'000, 1000, 0, Verdict::drop},
         {70'000, 1000, 0, Verdict::drop},
         {70'001, 1000, 70'000, Verdict::hold},  // full, but it moves
         {70'002, 999, 70'001, Verdict::accept},
         {70'003, 1000, 70'001, Verdict::hold},
         {130'002, 1000, 70'001, Verdict::hold},
         {130'003, 1000, 70'001, Verdict::drop}});
}

TEST_CASE("a terminal that nothing reads costs its workers one patience in an hour",
          "[agent][output]") {
  DropPolicy policy{{.queue_bytes = 1000, .patience = Millis{60'000}}};
  int held_ms = 0;
  for (int ms = 0; ms < 3'600'000; ++ms)
    if (policy.ask(at(ms), {1000, kStart - std::chrono::hours{1}}) == Verdict::hold) ++held_ms;
  CHECK(held_ms == 60'000);
}

TEST_CASE("while the job is being stopped a stuck sink holds nothing up for long",
          "[agent][output]") {
  DropPolicy policy{{.queue_bytes = 1000, .patience = Millis{60'000}}};
  CHECK(policy.ask(at(0), {1000, at(-1)}) == Verdict::hold);
  policy.shorten(Millis{2'000});
  policy.shorten(Millis{100'000});
  CHECK(policy.ask(at(1'999), {1000, at(-1)}) == Verdict::hold);
  CHECK(policy.hold_until() == at(2'000));
  CHECK(policy.ask(at(2'000), {1000, at(-1)}) == Verdict::drop);
  policy.begin_round(0);
  CHECK(policy.ask(at(3'000), {1000, at(2'999)}) == Verdict::hold);
  CHECK(policy.hold_until() == at(63'000));
}

TEST_CASE("no patience at all drops at once", "[agent][output]") {
  DropPolicy policy{{.queue_bytes = 1000, .patience = Millis{0}}};
  CHECK(policy.ask(at(0), {999, at(-1)}) == Verdict::accept);
  CHECK(policy.ask(at(0), {1000, at(-1)}) == Verdict::drop);
}

TEST_CASE("what was read from workers is dropped while their queue drops, a line of ours is not",
          "[agent][output]") {
  DropPolicy policy{{.queue_bytes = 1000, .patience = Millis{0}}};
  CHECK(policy.ask(at(0), {1000, at(-1)}) == Verdict::drop);
  CHECK_FALSE(policy.admit(Origin::worker, 1, 1000));
  CHECK_FALSE(policy.admit(Origin::worker_end, 1, 1000));
  CHECK(policy.admit(Origin::agent, 1, 1000));
  CHECK(policy.ask(at(1), {999, at(1)}) == Verdict::accept);
  CHECK(policy.admit(Origin::worker, 1, 999));
}

TEST_CASE("beyond twice its size a queue takes nothing but the last bytes of workers",
          "[agent][output]") {
  DropPolicy policy{{.queue_bytes = 1000, .patience = Millis{60'000}}};
  CHECK(policy.admit(Origin::worker, 500, 2000));
  CHECK_FALSE(policy.admit(Origin::worker, 1, 2001));
  CHECK_FALSE(policy.admit(Origin::agent, 1, 2001));
  CHECK(policy.admit(Origin::worker_end, 500, 2001));
}

TEST_CASE("last bytes of workers, and what the last round left, take no room from others",
          "[agent][output]") {
  DropPolicy policy{{.queue_bytes = 1000, .patience = Millis{60'000}}};
  policy.reserve(4000);
  CHECK(policy.admit(Origin::worker_end, 700, 3000));
  CHECK(policy.admit(Origin::agent, 1, 1000 + 4000 + 700));
  CHECK_FALSE(policy.admit(Origin::agent, 1, 1000 + 4000 + 700 + 1));
  policy.begin_round(3000);
  CHECK(policy.admit(Origin::agent, 1, 1000 + 1000 + 3000));
  CHECK_FALSE(policy.admit(Origin::agent, 1, 1000 + 1000 + 3000 + 1));
  policy.begin_round(std::size_t{64} << 20U);
  CHECK_FALSE(policy.admit(Origin::agent, 1, std::size_t{16} << 20U));
}
