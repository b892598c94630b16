#include "agent/daemon/job_machine.hpp"

#include <catch2/catch.hpp>

#include <random>

using namespace acc::agent::daemon;

namespace {

template <class T>
const T* find(const JobActions& actions) {
  for (const auto& action : actions)
    if (const auto* found = std::get_if<T>(&action)) return found;
  return nullptr;
}

// The position of an action of this kind; -1: there is none.
template <class T>
int place(const JobActions& actions) {
  for (std::size_t i = 0; i < actions.size(); ++i)
    if (std::holds_alternative<T>(actions[i])) return static_cast<int>(i);
  return -1;
}

JobLife running(RestartRule rule = RestartRule::no, std::uint32_t max = 0) {
  JobLife life;
  life.rule = rule;
  life.max_starts_again = max;
  (void)step(life, Submitted{});
  (void)step(life, SlotsGiven{});
  (void)step(life, GuardianStarted{});
  return life;
}

}  // namespace

SCENARIO("a job is submitted, starts when it has slots, and ends with its code", "[daemon]") {
  JobLife life;
  CHECK(find<AskForSlots>(step(life, Submitted{})) != nullptr);
  CHECK(state_of(life) == JobState::waiting);
  CHECK(find<StartGuardian>(step(life, SlotsGiven{})) != nullptr);
  CHECK(life.starts == 1);
  (void)step(life, GuardianStarted{});
  CHECK(state_of(life) == JobState::running);
  SECTION("0 is a success") {
    const auto actions = step(life, GuardianEnded{0});
    CHECK(state_of(life) == JobState::succeeded);
    CHECK(place<Record>(actions) < place<FreeSlots>(actions));  // no slot is given twice
  }
  SECTION("another code is a failure") {
    (void)step(life, GuardianEnded{7});
    CHECK(state_of(life) == JobState::failed);
    CHECK(life.exit_code == 7);
  }
  SECTION("a killed guardian is a failure with the code of a lost agent") {
    (void)step(life, GuardianLost{"killed by SIGKILL (9)"});
    CHECK(state_of(life) == JobState::failed);
    CHECK(life.exit_code == 70);
    CHECK(life.reason == "acc-launch was lost: killed by SIGKILL (9)");
  }
}

TEST_CASE("a job that a signal of the user ended was started again as if it had failed", "[daemon]") {
  auto life = running(RestartRule::on_failure);
  CHECK(find<StopGuardian>(step(life, EndSignaled{})) == nullptr);  // it was sent
  CHECK(state_of(life) == JobState::running);
  (void)step(life, GuardianEnded{130});
  CHECK(state_of(life) == JobState::stopped);
  CHECK(life.exit_code == 130);
}

TEST_CASE("the part of a job that was stopped through another node was failed with 143",
          "[daemon]") {
  auto life = running();
  (void)step(life, GuardianEnded{143, Delay{0}, 0.5, true, true});
  CHECK(state_of(life) == JobState::stopped);
  CHECK(life.exit_code == 143);
  auto found = running();
  (void)step(found, Found{.exit_code = 143, .has_started = true, .was_stopped = true});
  CHECK(state_of(found) == JobState::stopped);
  auto killed = running();  // a worker was, by somebody
  (void)step(killed, GuardianEnded{143});
  CHECK(state_of(killed) == JobState::failed);
}

SCENARIO("a stop is recorded before the signal is sent, and no restart follows it", "[daemon]") {
  auto life = running(RestartRule::always);
  const auto actions = step(life, StopAsked{5});
  CHECK(state_of(life) == JobState::stopping);
  CHECK(place<Record>(actions) < place<StopGuardian>(actions));
  CHECK(find<ArmKill>(actions)->delay == std::chrono::seconds{20});
  SECTION("it ends as stopped, whatever its code") {
    (void)step(life, GuardianEnded{143});
    CHECK(state_of(life) == JobState::stopped);
    CHECK(life.exit_code == 143);
  }
  SECTION("also when its guardian is lost") {
    (void)step(life, GuardianLost{"killed"});
    CHECK(state_of(life) == JobState::stopped);
  }
  SECTION("what outlives its grace is killed") {
    CHECK(find<KillGuardian>(step(life, KillDue{})) != nullptr);
  }
  SECTION("without a grace acc-launch has its own, and nothing is killed") {
    auto other = running();
    CHECK(find<ArmKill>(step(other, StopAsked{})) == nullptr);
  }
}

TEST_CASE("a job that waits is stopped without a start", "[daemon]") {
  JobLife life;
  (void)step(life, Submitted{});
  const auto actions = step(life, StopAsked{});
  CHECK(state_of(life) == JobState::stopped);
  CHECK(find<FreeSlots>(actions) != nullptr);
  CHECK(find<StopGuardian>(actions) == nullptr);
  CHECK(life.reason == "stopped before its first start");
  // Slots that were on their way are given back.
  CHECK(find<FreeSlots>(step(life, SlotsGiven{})) != nullptr);
  CHECK(state_of(life) == JobState::stopped);
}

TEST_CASE("the restart rule decides after each end", "[daemon]") {
  struct Row {
    RestartRule rule;
    int exit_code;
    bool restarts;
  };
  for (const auto& row :
       {Row{RestartRule::no, 0, false}, Row{RestartRule::no, 1, false},
        Row{RestartRule::on_failure, 0, false}, Row{RestartRule::on_failure, 1, true},
        Row{RestartRule::always, 0, true}, Row{RestartRule::always, 1, true}}) {
    auto life = running(row.rule);
    const auto actions = step(life, GuardianEnded{row.exit_code});
    CHECK((find<ArmDelay>(actions) != nullptr) == row.restarts);
    CHECK((state_of(life) == JobState::waiting) == row.restarts);
    CHECK((find<FreeSlots>(actions) == nullptr) == row.restarts);  // it keeps its slots
  }
}

TEST_CASE("restarts come at once, then after 1, 2, 4 seconds, and at most a minute", "[daemon]") {
  auto life = running(RestartRule::always);
  std::vector<long> delays;
  for (int i = 0; i < 10; ++i) {
    const auto actions = step(life, GuardianEnded{1, Delay{10}, 0.5});
    REQUIRE(find<ArmDelay>(actions) != nullptr);
    delays.push_back(find<ArmDelay>(actions)->delay.count());
    CHECK(find<StartGuardian>(step(life, DelayOver{})) != nullptr);
    (void)step(life, GuardianStarted{});
  }
  CHECK(delays == std::vector<long>{0, 1000, 2000, 4000, 8000, 16000, 32000, 60000, 60000, 60000});
  // A guardian that lived long begins anew.
  CHECK(find<ArmDelay>(step(life, GuardianEnded{1, kHealthyAfter, 0.5}))->delay == Delay{0});
}

TEST_CASE("a job whose script isn't there was tried each minute, and said only exit code 127",
          "[daemon]") {
  const std::string why = "cannot start '/srv/train.py': No such file or directory";
  auto life = running(RestartRule::always);
  std::vector<long> delays;
  for (int i = 0; i < 11; ++i) {
    const auto actions =
        i == 10 ? step(life, Found{.exit_code = 127, .has_started = true, .not_started = why})
                : step(life, GuardianEnded{127, Delay{10}, 0.5, true, false, why});
    REQUIRE(find<ArmDelay>(actions) != nullptr);
    delays.push_back(find<ArmDelay>(actions)->delay.count());
    CHECK(life.reason == why);
    if (i == 1) CHECK(find<Report>(actions)->text == why + " (exit code 127); restarts in 2.0 s");
    (void)step(life, DelayOver{});
    (void)step(life, GuardianStarted{});
    CHECK(life.reason.empty());
  }
  CHECK(delays == std::vector<long>{1000, 2000, 4000, 8000, 16000, 32000, 64000, 128000, 256000,
                                    300000, 300000});
  // Once it runs, it is one of those that ran.
  CHECK(find<ArmDelay>(step(life, GuardianEnded{1, Delay{10}, 0.5}))->delay == kLongestDelay);
  auto no_folder = running(RestartRule::always);
  CHECK(find<ArmDelay>(step(no_folder, StartFailed{1, "no folder"}))->delay.count() == 1000);
}

TEST_CASE("how long a job waits for its restart is counted down", "[daemon]") {
  CHECK(with_delay("exit code 1", Delay{0}) == "exit code 1; restarts at once");
  CHECK(with_delay("exit code 1", Delay{-5}) == "exit code 1; restarts at once");
  CHECK(with_delay("exit code 1", Delay{61'960}) == "exit code 1; restarts in 62.0 s");
}

TEST_CASE("a job restarts no more often than it may", "[daemon]") {
  auto life = running(RestartRule::on_failure, 2);
  for (int i = 0; i < 2; ++i) {
    (void)step(life, GuardianEnded{1});
    CHECK(state_of(life) == JobState::waiting);
    (void)step(life, DelayOver{});
    (void)step(life, GuardianStarted{});
  }
  (void)step(life, GuardianEnded{1});
  CHECK(state_of(life) == JobState::failed);
  CHECK(life.starts == 3);
  SECTION("by hand it starts again, and has its restarts again") {
    CHECK(find<AskForSlots>(step(life, RestartAsked{})) != nullptr);
    CHECK(life.starts_again == 0);
    CHECK(!life.exit_code);
  }
}

TEST_CASE("jobs that waited failed within a second of each other while the disk was full",
          "[daemon]") {
  JobLife life;
  (void)step(life, Submitted{});
  (void)step(life, SlotsGiven{});
  auto actions = step(life, StartPostponed{"no space"});
  CHECK(life.phase == Phase::delayed);  // it keeps its slots: the next one would fail likewise
  CHECK(has_slots(life));
  CHECK(find<FreeSlots>(actions) == nullptr);
  CHECK(find<ArmDelay>(actions)->delay.count() == 1000);
  CHECK((life.starts == 0 && life.reason == "no space"));
  (void)step(life, DelayOver{});
  CHECK(find<ArmDelay>(step(life, StartPostponed{"no space"}))->delay.count() == 2000);
  SECTION("it starts when there is room") {
    (void)step(life, DelayOver{});
    CHECK(find<Report>(step(life, GuardianStarted{}))->text == "started");
    CHECK((life.starts == 1 && life.starts_again == 0));
    CHECK(life.postponed == 0);
  }
  SECTION("that counts as no failure: one that fails by itself then is restarted at once") {
    life.rule = RestartRule::on_failure;
    (void)step(life, DelayOver{});
    (void)step(life, GuardianStarted{});
    CHECK(find<ArmDelay>(step(life, GuardianEnded{1, Delay{10'000}}))->delay.count() == 0);
  }
  SECTION("a stop ends it") {
    (void)step(life, StopAsked{});
    CHECK(state_of(life) == JobState::stopped);
    CHECK(life.reason == "stopped before its first start");
  }
  SECTION("a stop while it starts ends it, too") {
    (void)step(life, DelayOver{});
    (void)step(life, StopAsked{});
    (void)step(life, StartPostponed{"no space"});
    CHECK(state_of(life) == JobState::stopped);
  }
}

TEST_CASE("a stop in the middle of a start reaches the guardian", "[daemon]") {
  JobLife life;
  (void)step(life, Submitted{});
  (void)step(life, SlotsGiven{});
  CHECK(find<StopGuardian>(step(life, StopAsked{})) != nullptr);  // carried out after the start
  (void)step(life, GuardianStarted{});
  CHECK(state_of(life) == JobState::stopping);
  (void)step(life, GuardianEnded{143});
  CHECK(state_of(life) == JobState::stopped);
}

TEST_CASE("a changed job file stops the job and starts it anew in its slots", "[daemon]") {
  auto life = running(RestartRule::always);
  CHECK(find<StopGuardian>(step(life, Reconfigured{})) != nullptr);
  CHECK(state_of(life) == JobState::stopping);
  const auto actions = step(life, GuardianEnded{143});
  CHECK(find<StartGuardian>(actions) != nullptr);
  CHECK(find<FreeSlots>(actions) == nullptr);
  CHECK_FALSE(life.stop_asked);
  SECTION("unless it is stopped meanwhile") {
    (void)step(life, GuardianStarted{});
    (void)step(life, Reconfigured{});
    (void)step(life, StopAsked{});
    (void)step(life, GuardianEnded{143});
    CHECK(state_of(life) == JobState::stopped);
  }
}

TEST_CASE("a job whose acc-launch ended before it began says so", "[daemon]") {
  auto life = running(RestartRule::no);
  (void)step(life, GuardianEnded{77, Delay{0}, 0.5, false});
  CHECK(state_of(life) == JobState::failed);
  CHECK(life.exit_code == 77);
  CHECK(life.reason == "acc-launch exited with code 77 before it began");
}

TEST_CASE("a job file that asks for other GPUs waits for them before its job starts anew",
          "[daemon]") {
  SECTION("while it runs") {
    auto life = running(RestartRule::always);
    CHECK(find<StopGuardian>(step(life, Reconfigured{true})) != nullptr);
    const auto actions = step(life, GuardianEnded{143});
    CHECK(find<StartGuardian>(actions) == nullptr);
    CHECK(find<FreeSlots>(actions) != nullptr);
    CHECK(find<AskForSlots>(actions) != nullptr);
    CHECK(life.phase == Phase::queued);
    CHECK(find<StartGuardian>(step(life, SlotsGiven{})) != nullptr);
    (void)step(life, GuardianStarted{});
    (void)step(life, Reconfigured{});
    CHECK(find<StartGuardian>(step(life, GuardianEnded{143})) != nullptr);
  }
  SECTION("while it waits") {
    JobLife life;
    (void)step(life, Submitted{});
    const auto actions = step(life, Reconfigured{true});
    CHECK(find<FreeSlots>(actions) != nullptr);
    CHECK(find<AskForSlots>(actions) != nullptr);
  }
}

TEST_CASE("what a restarted daemon found decides how a job goes on", "[daemon]") {
  for (const Phase phase : {Phase::starting, Phase::running, Phase::stopping}) {
    JobLife life;
    life.phase = phase;
    life.starts = 1;
    life.stop_asked = phase == Phase::stopping;
    const bool is_stopping = phase == Phase::stopping;
    SECTION("it lives: it is adopted, and a stop is sent again, phase " +
            std::to_string(static_cast<int>(phase))) {
      const auto actions = step(life, Found{.lives = true});
      CHECK(state_of(life) == (is_stopping ? JobState::stopping : JobState::running));
      CHECK((find<StopGuardian>(actions) != nullptr) == is_stopping);
      CHECK(find<StartGuardian>(actions) == nullptr);
    }
    SECTION("it ended with a code, phase " + std::to_string(static_cast<int>(phase))) {
      (void)step(life, Found{.exit_code = 3, .has_started = true});
      CHECK(state_of(life) == (is_stopping ? JobState::stopped : JobState::failed));
      CHECK(life.exit_code == 3);
    }
    SECTION("it never ran: it starts, once, phase " + std::to_string(static_cast<int>(phase))) {
      const auto actions = step(life, Found{});
      CHECK((find<StartGuardian>(actions) != nullptr) == !is_stopping);
      if (!is_stopping) CHECK(life.starts == 1);
      if (is_stopping) CHECK(state_of(life) == JobState::stopped);
    }
    SECTION("it was killed, phase " + std::to_string(static_cast<int>(phase))) {
      (void)step(life, Found{.has_started = true});
      CHECK(life.exit_code == 70);
      CHECK(state_of(life) == (is_stopping ? JobState::stopped : JobState::failed));
    }
  }
  SECTION("one that waited asks for slots again") {
    JobLife life;
    CHECK(find<AskForSlots>(step(life, Found{})) != nullptr);
  }
  SECTION("one that had ended stays so") {
    JobLife life;
    life.phase = Phase::ended;
    CHECK(step(life, Found{.exit_code = 1, .has_started = true}).empty());
    CHECK(state_of(life) == JobState::succeeded);
  }
}

// Any events in any order, and what must hold after each.
TEST_CASE("no order of events starts a guardian beside another or loses slots", "[daemon]") {
  std::mt19937 random{7};
  for (int game = 0; game < 3000; ++game) {
    JobLife life;
    life.rule = static_cast<RestartRule>(random() % 3);
    life.max_starts_again = static_cast<std::uint32_t>(random() % 3);
    bool guardian = false;
    bool slots = false;
    bool asked = false;
    const auto play = [&](const JobChange& event) {
      for (const auto& action : step(life, event)) {
        if (std::holds_alternative<StartGuardian>(action)) {
          REQUIRE_FALSE(guardian);
          REQUIRE(slots);
          guardian = true;
        }
        if (std::holds_alternative<AskForSlots>(action)) asked = true;
        if (std::holds_alternative<FreeSlots>(action)) slots = asked = false;
      }
      REQUIRE(has_slots(life) == slots);
    };
    play(Submitted{});
    for (int i = 0; i < 60; ++i) {
      switch (random() % 9) {
        case 0:
          if (asked && !slots) {
            slots = true;
            asked = false;
            play(SlotsGiven{});
          }
          break;
        case 1:
          if (guardian) play(GuardianStarted{});
          break;
        case 2:
          if (guardian) {
            guardian = false;
            play(GuardianEnded{static_cast<int>(random() % 2)});
          }
          break;
        case 3:
          if (guardian) {
            guardian = false;
            play(GuardianLost{"killed"});
          }
          break;
        case 4:
          if (guardian && life.phase == Phase::starting) {
            guardian = false;
            if (random() % 2 == 0)
              play(StartFailed{1, "no"});
            else
              play(StartPostponed{"no"});
          }
          break;
        case 5:
          if (random() % 4 == 0) play(StopAsked{});
          break;
        case 6:
          play(RestartAsked{});
          break;
        case 7:
          play(DelayOver{});
          break;
        default:
          if (random() % 4 == 0) play(Reconfigured{random() % 2 == 0});
      }
    }
    // Whatever was played: a stop ends it when its guardian ends.
    play(StopAsked{});
    if (guardian) {
      guardian = false;
      play(GuardianEnded{143});
    }
    REQUIRE(life.phase == Phase::ended);
    REQUIRE_FALSE(slots);
  }
}
