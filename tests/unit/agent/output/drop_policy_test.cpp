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

struct Step {
  int now_ms;
  std::size_t queued;
  int progress_ms;  // when the sink last moved
  Verdict expected;
};

void check(const std::vector<Step>& steps) {
  DropPolicy policy{{.queue_bytes = 1000, .patience = Millis{100}, .distrust = Millis{10'000}}};
  for (const Step& step : steps) {
    CAPTURE(step.now_ms, step.queued, step.progress_ms);
    CHECK(policy.ask(at(step.now_ms), step.queued, at(step.progress_ms)) == step.expected);
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

TEST_CASE("a terminal that nobody reads costs its workers 100 ms in an hour", "[agent][output]") {
  DropPolicy policy{{.queue_bytes = 1000}};
  int held_ms = 0;
  for (int ms = 0; ms < 3'600'000; ++ms)
    if (policy.ask(at(ms), 1000, kStart - std::chrono::hours{1}) == Verdict::hold) ++held_ms;
  CHECK(held_ms == 100);
}
