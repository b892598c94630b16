#include "tests/unit/agent/supervisor_orders.hpp"

#include <catch2/catch.hpp>

#include <functional>
#include <vector>

using namespace acc;
using namespace acc::agent;
using std::chrono::seconds;

namespace {

using Prepare = void (Story::*)();
using Do = std::function<std::string(Story&)>;

struct Row {
  std::string what;
  Do event;
  /// By situation, in the order of kSituations: the actions and the phase after them.
  std::vector<std::string> outcome;
};

struct Situation {
  const char* name;
  Prepare prepare;
};
constexpr Situation kSituations[] = {
    {"before the first round", &Story::awaiting},
    {"starting", &Story::starting},
    {"running", &Story::running},
    {"failing", &Story::failing},
    {"killing", &Story::killing},
    {"trying to start again", &Story::backing_off},
    {"completed", &Story::completed},
    {"finished", &Story::finished},
};

const std::vector<Row> kTable{
    {"the order to start round 1",
     [](Story& s) { return s.ordered(1); },
     {"start 1 → idle", " → idle", " → running", " → stopping", " → killing", " → backing_off",
      "start 1 → idle", " → finished"}},
    {"the order to start the same round again",
     [](Story& s) { return s.ordered(0); },
     {"start 0 → idle", " → idle", " → running", " → stopping", " → killing", " → backing_off",
      " → awaiting", " → finished"}},
    {"the order to stop within 5 s",
     [](Story& s) { return s.stop(0, seconds{5}); },
     {"report stopped → awaiting", "kill, give_up 10 s → killing",
      "SIGTERM, strays, grace 5 s → stopping", "grace 5 s → stopping", " → killing",
      "report stopped → awaiting", "report stopped → awaiting", " → finished"}},
    {"the order to stop at once",
     [](Story& s) { return s.stop(SIGKILL, seconds{5}); },
     {"report stopped → awaiting", "kill, give_up 10 s → killing",
      "tell killing, kill, give_up 10 s → killing", "tell killing, kill, give_up 10 s → killing",
      " → killing", "report stopped → awaiting", "report stopped → awaiting", " → finished"}},
    {"the order to end for good by SIGINT",
     [](Story& s) { return s.stop(SIGINT, seconds{15}, true); },
     {"report stopped, farewell 2 s → awaiting", "kill, give_up 10 s → killing",
      "SIGINT, grace 3 s → stopping", " → stopping", " → killing",
      "report stopped, farewell 25 s → awaiting", "report stopped, farewell 25 s → awaiting",
      " → finished"}},
    {"the order to pass on SIGUSR1",
     [](Story& s) { return s.feed(SignalOrdered{SIGUSR1}); },
     {" → awaiting", " → idle", "SIGUSR1 → running", " → stopping", " → killing", " → backing_off",
      " → awaiting", " → finished"}},
    {"the end of the lease",
     [](Story& s) { return s.feed(LeaseOver{s.now}); },
     {"kill → awaiting", "kill, give_up 10 s → killing", "kill, give_up 10 s → killing",
      "kill, give_up 10 s → killing", "kill → killing", "kill, report stopped → awaiting",
      "kill → awaiting", " → finished"}},
    {"the end of the job",
     [](Story& s) { return s.closed(Verdict::failed, 7); },
     {"finish failed 7 → finished", "kill, give_up 10 s → killing",
      "SIGTERM, strays, grace 15 s → stopping", " → stopping", " → killing",
      "finish failed 7 → finished", "finish failed 7 → finished", " → finished"}},
    {"SIGTERM",
     [](Story& s) { return s.signal(SIGTERM); },
     {"ask SIGTERM 0, farewell 2 s → awaiting", "ask SIGTERM 0, kill, give_up 10 s → killing",
      "ask SIGTERM 0, SIGTERM, tell stopping, grace 15 s → stopping",
      "ask SIGTERM 0, tell no restart → stopping", "ask SIGTERM 0, tell no restart → killing",
      "ask SIGTERM 0, report stopped, farewell 25 s → awaiting",
      "ask SIGTERM 0, farewell 25 s → awaiting", " → finished"}},
    {"SIGUSR1",
     [](Story& s) { return s.signal(SIGUSR1); },
     {"ask SIGUSR1 0 → awaiting", "ask SIGUSR1 0 → idle", "ask SIGUSR1 0 → running",
      "ask SIGUSR1 0 → stopping", "ask SIGUSR1 0 → killing", "ask SIGUSR1 0 → backing_off",
      "ask SIGUSR1 0 → awaiting", " → finished"}},
    {"the loss of the guardian",
     [](Story& s) { return s.feed(GuardianLost{s.now}); },
     {"finish guardian_lost 70 → finished", "kill, give_up 10 s → killing",
      "kill, give_up 10 s → killing", "kill, give_up 10 s → killing", "kill → killing",
      "finish guardian_lost 70 → finished", "finish guardian_lost 70 → finished", " → finished"}},
    {"the farewell timer, unasked",
     [](Story& s) { return s.fires(Timer::farewell); },
     {" → awaiting", " → idle", " → running", " → stopping", " → killing", " → backing_off",
      " → awaiting", " → finished"}},
    {"the give-up timer",
     [](Story& s) { return s.fires(Timer::give_up); },
     {" → awaiting", " → idle", " → running", " → stopping",
      "report unkillable, finish unkillable 72 → finished", " → backing_off", " → awaiting",
      " → finished"}},
    {"the backoff timer",
     [](Story& s) { return s.fires(Timer::backoff); },
     {" → awaiting", " → idle", " → running", " → stopping", " → killing", "start 0 → idle",
      " → awaiting", " → finished"}},
    {"the end of the patience with left-overs",
     [](Story& s) { return s.fires(Timer::left_over); },
     {" → awaiting", " → idle", " → running", " → stopping", " → killing", " → backing_off",
      " → awaiting", " → finished"}},
    {"the failure of worker 1",
     [](Story& s) { return s.exits(1, Signaled{SIGSEGV}); },
     {" → awaiting", " → idle",
      "SIGTERM, strays, grace 15 s, report failed, tell failure → stopping",
      "left_over 150 ms → stopping", " → killing", " → backing_off", " → awaiting", " → finished"}},
    {"the last process's end",
     [](Story& s) { return s.emptied(true); },
     {" → awaiting", " → idle", " → running", "report stopped with progress → awaiting",
      "report stopped with progress → awaiting", " → backing_off", " → awaiting", " → finished"}},
};

}  // namespace

TEST_CASE("every event in every phase of a coordinated node does what the table says",
          "[agent][supervisor]") {
  for (const auto& row : kTable) {
    REQUIRE(row.outcome.size() == std::size(kSituations));
    for (std::size_t i = 0; i < std::size(kSituations); ++i) {
      Story story;
      (story.*kSituations[i].prepare)();
      INFO(kSituations[i].name << ": " << row.what);
      const std::string done = row.event(story);
      CHECK(done + " → " + std::string{to_string(story.group.phase)} == row.outcome[i]);
    }
  }
}

TEST_CASE("orders mean nothing to a job on one node", "[agent][supervisor]") {
  GroupState group;
  step(group, Began{});
  step(group, RoundStarted{});
  CHECK(step(group, RoundOrdered{Round{1}, {}, {}}).empty());
  CHECK(step(group, StopOrdered{}).empty());
  CHECK(step(group, SignalOrdered{SIGUSR1}).empty());
  CHECK(step(group, LeaseOver{}).empty());
  CHECK(step(group, JobClosed{Verdict::failed, 1, {}}).empty());
  CHECK(step(group, TimerFired{Timer::farewell, {}}).empty());
  CHECK(group.phase == Phase::running);
}
