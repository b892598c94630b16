#include "agent/drop_policy.hpp"

#include <catch2/catch.hpp>

#include <ostream>
#include <vector>

using namespace acc;
using acc::agent::DropPolicy;
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

constexpr std::uint64_t kProven = 1'000'000;  // somebody reads it

struct Step {
  int now_ms;
  std::size_t queued;
  int progress_ms;  // when the sink last moved
  Verdict expected;
  std::uint64_t taken = kProven;  // by the sink, in all
};

void check(const std::vector<Step>& steps, std::size_t trust_bytes = 1000) {
  DropPolicy policy{{.queue_bytes = 1000,
                     .patience = Millis{100},
                     .distrust = Millis{10'000},
                     .first_patience = Millis{1000},
                     .proof_bytes = 500,
                     .trust_bytes = trust_bytes}};
  for (const Step& step : steps) {
    CAPTURE(step.now_ms, step.queued, step.progress_ms, step.taken);
    CHECK(policy.ask(at(step.now_ms), {step.queued, at(step.progress_ms), step.taken}) ==
          step.expected);
  }
}

}  // namespace

TEST_CASE("a queue with room accepts, however long its sink stands still", "[agent][output]") {
  check({{0, 0, -9000, Verdict::accept}, {5000, 999, -9000, Verdict::accept}});
}

TEST_CASE("a full queue holds the workers for its patience, then drops", "[agent][output]") {
  check({{0, 1000, -5000, Verdict::hold},
         {99, 1000, -5000, Verdict::hold},
         {100, 1000, -5000, Verdict::drop},
         {5000, 1000, -5000, Verdict::drop}});
}

TEST_CASE("a sink that keeps moving may hold the workers for as long as it needs",
          "[agent][output]") {
  check({{0, 1000, 0, Verdict::hold},
         {90, 1000, 80, Verdict::hold},
         {170, 1000, 160, Verdict::hold},
         {250, 1000, 240, Verdict::hold},
         {340, 1000, 240, Verdict::drop}});
}

TEST_CASE("dropping goes on until half of the queue is free, so that no single lines slip through",
          "[agent][output]") {
  check({{0, 1000, 0, Verdict::hold},
         {100, 1000, 0, Verdict::drop},
         {110, 900, 105, Verdict::drop},
         {120, 501, 115, Verdict::drop},
         {130, 500, 125, Verdict::accept}});
}

TEST_CASE("a reader that begins late is waited for, once", "[agent][output]") {
  check({{0, 1000, -5000, Verdict::hold, 0},
         {999, 1000, -5000, Verdict::hold, 500},  // it is all in the kernel
         {1000, 1000, -5000, Verdict::drop, 500},
         {12'000, 500, 11'999, Verdict::accept, 500},
         {12'000, 1000, 11'999, Verdict::hold, 500},
         {12'101, 1000, 11'999, Verdict::drop, 500}});
  check({{0, 1000, 0, Verdict::hold, 0},
         {300, 1000, 299, Verdict::hold, 400},
         {1200, 1000, 299, Verdict::hold, 500},
         {1200, 1000, 1150, Verdict::hold, 501},  // now it has shown that somebody reads
         {1250, 1000, 1150, Verdict::drop, 501}});
}

TEST_CASE("a sink that moves again after a pause may hold the workers again", "[agent][output]") {
  check({{0, 1000, 0, Verdict::hold, 5000},
         {100, 1000, 0, Verdict::drop, 5000},
         {150, 500, 149, Verdict::accept, 5500},
         {151, 1000, 150, Verdict::drop, 5700},  // less than a queue since the pause
         {160, 500, 159, Verdict::accept, 5999},
         {161, 1000, 160, Verdict::hold, 6000},
         {170, 1000, 169, Verdict::hold, 7000}});
  // Where the queue is large, a part of it is enough.
  check({{0, 1000, 0, Verdict::hold, 5000},
         {100, 1000, 0, Verdict::drop, 5000},
         {150, 500, 149, Verdict::accept, 5500},
         {151, 1000, 150, Verdict::hold, 5500}},
        500);
}

TEST_CASE("a sink that failed its trust drops at once for ten seconds, then may hold again",
          "[agent][output]") {
  check({{0, 1000, 0, Verdict::hold},
         {100, 1000, 0, Verdict::drop},
         {200, 0, 150, Verdict::accept},
         {300, 1000, 290, Verdict::drop},  // not trusted: no hold
         {400, 0, 390, Verdict::accept},
         {10'299, 1000, 10'298, Verdict::drop},  // ten seconds since the last drop are not over
         {10'400, 0, 10'399, Verdict::accept},
         {20'299, 1000, 20'298, Verdict::hold}});
}

TEST_CASE("a terminal that nobody reads costs its workers a second in an hour", "[agent][output]") {
  DropPolicy policy{{.queue_bytes = 1000}};
  int held_ms = 0;
  for (int ms = 0; ms < 3'600'000; ++ms)
    if (policy.ask(at(ms), {1000, kStart - std::chrono::hours{1}, 4096}) == Verdict::hold)
      ++held_ms;
  CHECK(held_ms == 1000);
}

TEST_CASE("a sink that stands still for good after it has moved costs 100 ms in an hour",
          "[agent][output]") {
  DropPolicy policy{{.queue_bytes = 1000}};
  int held_ms = 0;
  for (int ms = 0; ms < 3'600'000; ++ms)
    if (policy.ask(at(ms), {1000, kStart - std::chrono::hours{1}, 1U << 30U}) == Verdict::hold)
      ++held_ms;
  CHECK(held_ms == 100);
}
