#include "tests/unit/agent/coordinated.hpp"

#include <catch2/catch.hpp>

#include <fstream>
#include <functional>
#include <iterator>
#include <string>
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
      "SIGTERM, escaped, grace 5 s → stopping", "grace 5 s → stopping", " → killing",
      "report stopped → awaiting", "report stopped → awaiting", " → finished"}},
    {"the order to stop at once",
     [](Story& s) { return s.stop(SIGKILL, seconds{5}); },
     {"report stopped → awaiting", "kill, give_up 10 s → killing",
      "tell killing, kill, give_up 10 s → killing", "tell killing, kill, give_up 10 s → killing",
      " → killing", "report stopped → awaiting", "report stopped → awaiting", " → finished"}},
    {"the order to end for good by SIGINT",
     [](Story& s) { return s.stop(SIGINT, seconds{15}, true); },
     {"report stopped, close_timeout 2 s → awaiting", "kill, give_up 10 s → killing",
      "SIGINT, grace 3 s → stopping", " → stopping", " → killing",
      "report stopped, close_timeout 25 s → awaiting",
      "report stopped, close_timeout 25 s → awaiting", " → finished"}},
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
     [](Story& s) { return s.closed(Outcome::failed, 7); },
     {"finish failed 7 → finished", "kill, give_up 10 s → killing",
      "SIGTERM, escaped, grace 15 s → stopping", " → stopping", " → killing",
      "finish failed 7 → finished", "finish failed 7 → finished", " → finished"}},
    {"no coordinator is found",
     [](Story& s) {
       return s.feed(GaveUp{{Outcome::nodes_missing, 69}, false, s.now});
     },
     {"finish nodes_missing 69 → finished", "kill, give_up 10 s → killing",
      "SIGTERM, escaped, grace 15 s → stopping", " → stopping", " → killing",
      "finish nodes_missing 69 → finished", "finish nodes_missing 69 → finished", " → finished"}},
    {"the loss of the connection",
     [](Story& s) { return s.feed(LinkChanged{false}); },
     {" → awaiting", " → idle", " → running", " → stopping", " → killing", " → backing_off",
      " → awaiting", " → finished"}},
    {"the end of the workers' first moment",
     [](Story& s) { return s.fires(Timer::startup); },
     {" → awaiting", " → idle", " → running", " → stopping", " → killing", " → backing_off",
      " → awaiting", " → finished"}},
    {"SIGTERM",
     [](Story& s) { return s.signal(SIGTERM); },
     {"ask SIGTERM, close_timeout 2 s → awaiting", "ask SIGTERM, kill, give_up 10 s → killing",
      "ask SIGTERM, SIGTERM, tell stopping, grace 15 s → stopping",
      "ask SIGTERM, tell no restart → stopping", "ask SIGTERM, tell no restart → killing",
      "ask SIGTERM, report stopped, close_timeout 25 s → awaiting",
      "ask SIGTERM, close_timeout 25 s → awaiting", " → finished"}},
    {"SIGUSR1",
     [](Story& s) { return s.signal(SIGUSR1); },
     {"ask SIGUSR1 → awaiting", "ask SIGUSR1 → idle", "ask SIGUSR1 → running",
      "ask SIGUSR1 → stopping", "ask SIGUSR1 → killing", "ask SIGUSR1 → backing_off",
      "ask SIGUSR1 → awaiting", " → finished"}},
    {"a stop over the control socket, within 5 s",
     [](Story& s) {
       return s.feed(StopAsked{seconds{5}, s.now});
     },
     {"ask SIGTERM, close_timeout 2 s → awaiting", "ask SIGTERM, kill, give_up 10 s → killing",
      "ask SIGTERM, SIGTERM, tell stopping, grace 5 s → stopping",
      "ask SIGTERM, tell no restart, grace 5 s → stopping",
      "ask SIGTERM, tell no restart → killing",
      "ask SIGTERM, report stopped, close_timeout 15 s → awaiting",
      "ask SIGTERM, close_timeout 15 s → awaiting", " → finished"}},
    {"a restart over the control socket",
     [](Story& s) { return s.feed(RestartAsked{s.now}); },
     {"ask restart → awaiting", "ask restart → idle", "ask restart → running",
      "ask restart → stopping", "ask restart → killing", "ask restart → backing_off",
      "ask restart → awaiting", " → finished"}},
    {"the loss of the guardian",
     [](Story& s) { return s.feed(GuardianLost{s.now}); },
     {"finish guardian_lost 70 → finished", "kill, give_up 10 s → killing",
      "kill, give_up 10 s → killing", "kill, give_up 10 s → killing", "kill → killing",
      "finish guardian_lost 70 → finished", "finish guardian_lost 70 → finished", " → finished"}},
    {"the close timeout, unasked",
     [](Story& s) { return s.fires(Timer::close_timeout); },
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
     {" → awaiting", " → idle", " → running", "escaped → stopping", " → killing", " → backing_off",
      " → awaiting", " → finished"}},
    {"the failure of worker 1",
     [](Story& s) { return s.exits(1, Signaled{SIGSEGV}); },
     {" → awaiting", " → idle",
      "SIGTERM, escaped, grace 15 s, report failed, tell failure → stopping",
      "left_over 150 ms → stopping", " → killing", " → backing_off", " → awaiting", " → finished"}},
    {"Ctrl-C in a worker's terminal",
     [](Story& s) { return s.feed(TerminalInterrupted{s.now}); },
     {" → awaiting", " → idle", " → running", " → stopping", " → killing", " → backing_off",
      " → awaiting", " → finished"}},
    {"the last process's end",
     [](Story& s) { return s.emptied(true); },
     {" → awaiting", " → idle", " → running", "report stopped with progress → awaiting",
      "report stopped with progress → awaiting", " → backing_off", " → awaiting", " → finished"}},
};

}  // namespace

// ---- the table of phases in agent/README.md ----

std::string table_of_phases() {
  std::string text = "| event |";
  std::string rule = "|---|";
  for (const auto& situation : kSituations) {
    text += std::string{" "} + situation.name + " |";
    rule += "---|";
  }
  text += "\n" + rule + "\n";
  for (const auto& row : kTable) {
    text += "| " + row.what + " |";
    for (const auto& situation : kSituations) {
      Story story;
      (story.*situation.prepare)();
      const Phase before = story.group.phase;
      row.event(story);
      const Phase after = story.group.phase;
      text += " " + std::string{after == before ? "·" : to_string(after)} + " |";
    }
    text += "\n";
  }
  return text;
}

const std::string kBegin = "<!-- phases -->\n";
const std::string kEnd = "<!-- end of phases -->";

std::string read_readme() {
  std::ifstream file{ACC_AGENT_README};
  return {std::istreambuf_iterator<char>{file}, {}};
}

TEST_CASE("the table of phases in agent/README.md is what the supervisor does",
          "[agent][supervisor]") {
  const std::string readme = read_readme();
  const auto begin = readme.find(kBegin);
  REQUIRE(begin != std::string::npos);
  const auto end = readme.find(kEnd, begin);
  REQUIRE(end != std::string::npos);
  CHECK(readme.substr(begin + kBegin.size(), end - begin - kBegin.size()) == table_of_phases());
}

// By hand, after a change that is meant.
TEST_CASE("writes the table of phases", "[.][write_phases]") {
  std::string readme = read_readme();
  const auto begin = readme.find(kBegin) + kBegin.size();
  readme.replace(begin, readme.find(kEnd, begin) - begin, table_of_phases());
  std::ofstream{ACC_AGENT_README} << readme;
}

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
  CHECK(step(group, JobClosed{{Outcome::failed, 1}, {}}).empty());
  CHECK(step(group, TimerFired{Timer::close_timeout, {}}).empty());
  CHECK(group.phase == Phase::running);
}
