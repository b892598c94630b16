#include "agent/status_text.hpp"

#include <catch2/catch.hpp>

using namespace acc;
using namespace acc::agent;

TEST_CASE("the status line says what is waited for, and for how long", "[agent][status]") {
  StatusFacts facts;
  facts.workers = 8;
  facts.max_restarts = 3;
  facts.ledger.budget_used = 1;
  facts.reason = "rank 1 exited with code 7";
  facts.phase = Phase::backing_off;
  facts.left = Millis{3'200};
  CHECK(status_text(facts, 200) ==
        "acc-launch: next attempt in 4 s (restart 1 of 3), after: rank 1 exited with code 7");
  facts.phase = Phase::stopping;
  facts.alive = 2;
  CHECK(status_text(facts, 200) == "acc-launch: stopping, 2 of 8 workers left, killed in 4 s");
  facts.kills_next = false;  // after a Ctrl-C that a worker may have swallowed at its start
  CHECK(status_text(facts, 200) == "acc-launch: stopping, 2 of 8 workers left, SIGTERM in 4 s");
  facts.left = Millis{0};
  CHECK(status_text(facts, 200) == "acc-launch: stopping, 2 of 8 workers left");
  facts.phase = Phase::awaiting;
  facts.is_coordinated = true;
  facts.in_phase = Millis{75'000};
  facts.reason.clear();
  CHECK(status_text(facts, 200) == "acc-launch: waiting for other nodes, 1 min 15 s");
  facts.ends_for_good = true;
  CHECK(status_text(facts, 200) == "acc-launch: waiting for the other nodes to end, 1 min 15 s");
}

TEST_CASE("workers that run and say nothing have no status line", "[agent][status]") {
  StatusFacts facts;
  facts.phase = Phase::running;
  CHECK(status_text(facts, 80).empty());
  facts.progress = "step 1200, 3.1 steps/s";
  CHECK(status_text(facts, 80) == "acc-launch: step 1200, 3.1 steps/s");
  facts.phase = Phase::finished;
  CHECK(status_text(facts, 80).empty());
  facts.phase = Phase::idle;  // on one node
  CHECK(status_text(facts, 80).empty());
}

TEST_CASE("progress is that of the slowest rank, by name", "[agent][status]") {
  CHECK(progress_text({}).empty());
  CHECK(progress_text({{.rank = Rank{0}, .step = 7}}) == "step 7");
  CHECK(progress_text({{.rank = Rank{0}, .step = 7, .steps_per_second = 0.25}}) ==
        "step 7, 0.25 steps/s");
  std::vector<WorkerProgress> two{{.rank = Rank{4}, .step = 120, .steps_per_second = 3.14159},
                                  {.rank = Rank{5}, .step = 119, .steps_per_second = 3.2}};
  CHECK(progress_text(two) == "step 119, 3.2 steps/s, slowest: rank 5");
  two[1].step = 120;
  CHECK(progress_text(two) == "step 120, 3.14 steps/s, slowest: rank 4");
  two[0].steps_per_second = 12'345.6;
  two[1].steps_per_second.reset();
  two[1].section = "eval\n";
  CHECK(progress_text(two) == "step 120, 12346 steps/s, slowest: rank 4");
  two[1].step = 100;
  CHECK(progress_text(two).starts_with("step 100, in section 'eval"));
  CHECK(progress_text(two).find('\n') == std::string::npos);
  two[1].section.clear();
  two[1].seconds_since_heartbeat = 74.5;
  CHECK(progress_text(two) == "step 100, slowest: rank 5, no heartbeat for 1 min 15 s");
}

TEST_CASE("the status line fits the terminal, whatever its words", "[agent][status]") {
  StatusFacts facts;
  facts.phase = Phase::running;
  facts.progress = "\xc3\xa4\xc3\xb6\xc3\xbc step";  // äöü
  CHECK(status_text(facts, 14) == "acc-launch: \xc3\xa4\xc3\xb6");
  CHECK(status_text(facts, 12) == "acc-launch: ");
  facts.phase = Phase::backing_off;
  facts.reason = "\033[2Jnasty\n";
  CHECK(status_text(facts, 200).find('\033') == std::string::npos);
  CHECK(status_text(facts, 200).find('\n') == std::string::npos);
}
