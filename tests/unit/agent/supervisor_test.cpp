#include "agent/supervisor.hpp"

#include <catch2/catch.hpp>

#include <algorithm>
#include <cerrno>
#include <csignal>

using namespace acc;
using namespace acc::agent;
using std::chrono::seconds;

namespace {

template <class A>
const A* find(const Actions& actions) {
  for (const auto& action : actions) {
    if (const auto* found = std::get_if<A>(&action)) return found;
  }
  return nullptr;
}

/// A group of `size` workers that run since second 0.
struct Story {
  GroupState group;
  Instant now{};

  explicit Story(std::uint32_t size, std::uint32_t max_restarts = 0) {
    group.size = size;
    group.restart.max_restarts = max_restarts;
  }
  Story& running() {
    step(group, Began{now});
    step(group, RoundStarted{now});
    return *this;
  }
  Actions after(seconds s, const Event& event) {
    now += s;
    return step(group, event);
  }
  Actions exits(std::uint32_t rank, ExitStatus status) {
    return step(group, WorkerExited{LocalRank{rank}, status, now});
  }
  Actions emptied(bool progress = false, double roll = 0.5) {
    return step(group, Emptied{now, progress, roll});
  }
  Actions signal(int signo) { return step(group, SignalArrived{signo, now}); }

  /// Worker 0 fails, the others follow our SIGTERM.
  Actions fails_whole_round(ExitStatus status = Exited{7}, bool progress = false) {
    exits(0, status);
    for (std::uint32_t i = 1; i < group.size; ++i) exits(i, Signaled{SIGTERM});
    return emptied(progress);
  }
  /// The next round is up, at once or after its delay.
  void next_round(const Actions& actions) {
    if (find<ArmTimer>(actions) != nullptr) step(group, TimerFired{Timer::backoff, now});
    step(group, RoundStarted{now});
  }
};

int finished_with(const Actions& actions) {
  const auto* finish = find<Finish>(actions);
  return finish != nullptr ? finish->end.exit_code : -1;
}

}  // namespace

SCENARIO("one worker dies while its peers still run", "[agent][supervisor]") {
  GIVEN("a group of 4 with one restart left") {
    Story story{4, 1};
    story.running();
    WHEN("local rank 2 is killed by SIGSEGV") {
      auto actions = story.exits(2, Signaled{SIGSEGV});
      THEN("the peers get SIGTERM before anything else, then a deadline") {
        CHECK(std::get<SignalWorkers>(actions.at(0)).signo == SIGTERM);
        REQUIRE(find<ArmTimer>(actions) != nullptr);
        CHECK(find<ArmTimer>(actions)->timer == Timer::grace);
        CHECK(story.group.phase == Phase::stopping);
      }
      AND_WHEN("the others end by our SIGTERM") {
        for (const std::uint32_t rank : {0U, 1U, 3U}) story.exits(rank, Signaled{SIGTERM});
        THEN("rank 2 stays on record as the root cause") {
          CHECK(story.group.first_failure->local_rank == LocalRank{2});
        }
        THEN("nothing is started before the round is known to be empty (P1)") {
          CHECK(story.group.phase == Phase::stopping);
          actions = story.emptied();
          REQUIRE(find<StartRound>(actions) != nullptr);
          CHECK(find<StartRound>(actions)->round == Round{1});
          CHECK(find<TellRestart>(actions)->ledger.budget_used == 1);
        }
      }
      AND_WHEN("they ignore it until the grace is over") {
        actions = story.after(seconds{15}, TimerFired{Timer::grace, {}});
        THEN("everything is killed, and a bound on that is set") {
          CHECK(find<KillAll>(actions) != nullptr);
          CHECK(find<ArmTimer>(actions)->timer == Timer::give_up);
        }
        AND_WHEN("even that doesn't end them") {
          actions = story.after(seconds{10}, TimerFired{Timer::give_up, {}});
          THEN("the job ends with the code for unkillable processes") {
            CHECK(finished_with(actions) == 72);
          }
        }
      }
    }
  }
}

SCENARIO("exactly max_restarts restarts are made", "[agent][supervisor]") {
  for (const std::uint32_t budget : {0U, 1U, 3U}) {
    Story story{2, budget};
    story.running();
    for (std::uint32_t i = 0; i < budget; ++i) {
      const auto actions = story.fails_whole_round();
      CHECK(find<Finish>(actions) == nullptr);
      story.next_round(actions);
      CHECK(story.group.ledger.restarts == i + 1);
    }
    const auto last = story.fails_whole_round();
    CHECK(finished_with(last) == 7);
    CHECK(find<Finish>(last)->end.outcome == Outcome::failed);
  }
}

TEST_CASE("the job's code is the first failed worker's, a signal is 128 + its number",
          "[agent][supervisor]") {
  Story story{2};
  story.running();
  story.exits(1, Signaled{SIGKILL});
  story.exits(0, Exited{1});
  CHECK(finished_with(story.emptied()) == 137);
}

TEST_CASE("a rank that finishes while others go on changes nothing", "[agent][supervisor]") {
  Story story{3};
  story.running();
  CHECK(story.exits(1, Exited{0}).empty());
  CHECK(story.group.phase == Phase::running);
  CHECK(story.exits(0, Exited{0}).empty());
  story.exits(2, Exited{0});
  CHECK(finished_with(story.emptied()) == 0);
}

SCENARIO("the delay grows while rounds fail quickly and starts again after a healthy one",
         "[agent][supervisor]") {
  Story story{1, 10};
  story.running();
  const auto delay_of = [](const Actions& actions) { return find<TellRestart>(actions)->delay; };
  std::int64_t expected[] = {0, 1000, 2000};
  for (const auto ms : expected) {
    const auto actions = story.fails_whole_round();
    CHECK(delay_of(actions) == Millis{ms});
    story.next_round(actions);
  }
  story.now += seconds{61};  // lived longer than healthy_after
  CHECK(delay_of(story.fails_whole_round()) == Millis{0});
}

TEST_CASE("a healthy time gives restarts back when asked to", "[agent][supervisor]") {
  Story story{1, 1};
  story.group.restart.refill_after = std::chrono::minutes{10};
  story.running();
  story.next_round(story.fails_whole_round());
  story.now += std::chrono::minutes{25};
  const auto actions = story.fails_whole_round();
  CHECK(find<StartRound>(actions) != nullptr);
  CHECK(find<TellRestart>(actions)->ledger.budget_used == 1);
  story.next_round(actions);
  CHECK(story.group.ledger.restarts == 2);  // what workers see only ever counts up
  CHECK(finished_with(story.fails_whole_round()) == 7);
}

TEST_CASE("rounds without progress end the job as hopeless", "[agent][supervisor]") {
  Story story{1, 100};
  story.group.restart.max_no_progress = 3;
  story.group.restart.has_progress_file = true;
  story.running();
  story.next_round(story.fails_whole_round(Exited{1}, false));
  story.next_round(story.fails_whole_round(Exited{1}, true));
  story.next_round(story.fails_whole_round(Exited{1}, false));
  story.next_round(story.fails_whole_round(Exited{1}, false));
  CHECK(finished_with(story.fails_whole_round(Exited{1}, false)) == 93);
}

TEST_CASE("a code of the class never is not retried", "[agent][supervisor]") {
  Story story{2, 5};
  story.group.restart.never_retry = {{2, 2}, {64, 78}, {139, 139}};
  story.running();
  CHECK(finished_with(story.fails_whole_round(Exited{65})) == 65);
  Story segv{2, 5};
  segv.group.restart.never_retry = {{139, 139}};
  segv.running();
  CHECK(finished_with(segv.fails_whole_round(Signaled{SIGSEGV})) == 139);
}

SCENARIO("the user asks the job to end", "[agent][supervisor]") {
  GIVEN("two running workers") {
    Story story{2, 5};
    story.running();
    WHEN("SIGTERM arrives") {
      auto actions = story.signal(SIGTERM);
      THEN("it is forwarded and a grace begins") {
        CHECK(find<SignalWorkers>(actions)->signo == SIGTERM);
        CHECK(find<ArmTimer>(actions)->after == seconds{15});
      }
      AND_WHEN("the workers end, each in its own way") {
        story.exits(0, Exited{0});
        story.exits(1, Exited{3});
        THEN("the code is 143, nothing is restarted") {
          CHECK(finished_with(story.emptied()) == 143);
        }
      }
      AND_WHEN("the scheduler repeats it") {
        THEN("nothing is hurried") { CHECK(story.signal(SIGTERM).empty()); }
      }
    }
    WHEN("Ctrl-C is pressed three times") {
      CHECK(find<SignalWorkers>(story.signal(SIGINT))->signo == SIGINT);
      const auto second = story.signal(SIGINT);
      const auto third = story.signal(SIGINT);
      THEN("the second hurries, the third kills") {
        CHECK(find<SignalWorkers>(second)->signo == SIGTERM);
        CHECK(find<ArmTimer>(second)->after == seconds{2});
        CHECK(find<KillAll>(third) != nullptr);
      }
      THEN("the code is 130") {
        story.exits(0, Signaled{SIGKILL});
        story.exits(1, Signaled{SIGKILL});
        CHECK(finished_with(story.emptied()) == 130);
      }
    }
    WHEN("Ctrl-C comes while Python starts, and is swallowed") {
      const auto first = story.signal(SIGINT);
      CHECK(find<SignalWorkers>(first)->signo == SIGINT);
      CHECK(find<ArmTimer>(first)->after == seconds{3});
      const auto later = story.after(seconds{3}, TimerFired{Timer::grace, story.now + seconds{3}});
      THEN("SIGTERM follows soon, with the whole grace") {
        CHECK(find<SignalWorkers>(later)->signo == SIGTERM);
        CHECK(find<ArmTimer>(later)->after == seconds{15});
        CHECK(find<KillAll>(later) == nullptr);
      }
    }
    WHEN("Ctrl-C comes later") {
      story.now += seconds{5};
      const auto first = story.signal(SIGINT);
      THEN("the workers have their grace for a checkpoint before SIGTERM") {
        CHECK(find<ArmTimer>(first)->after == seconds{15});
      }
      THEN("they had the grace twice: after it, SIGTERM leaves them a moment") {
        const auto later =
            story.after(seconds{15}, TimerFired{Timer::grace, story.now + seconds{15}});
        CHECK(find<SignalWorkers>(later)->signo == SIGTERM);
        CHECK(find<ArmTimer>(later)->after == seconds{2});
      }
    }
    WHEN("SIGUSR1 arrives") {
      const auto actions = story.signal(SIGUSR1);
      THEN("it is forwarded and nothing ends") {
        CHECK(find<SignalWorkers>(actions)->signo == SIGUSR1);
        CHECK(story.group.phase == Phase::running);
      }
    }
    WHEN("it comes while a failed round is on its way down") {
      story.exits(0, Exited{1});
      CHECK(find<TellNoRestart>(story.signal(SIGTERM)) != nullptr);
      story.exits(1, Signaled{SIGTERM});
      THEN("there is no restart") { CHECK(finished_with(story.emptied()) == 143); }
    }
  }
  GIVEN("a job that waits before its next restart") {
    Story story{1, 5};
    story.running();
    story.next_round(story.fails_whole_round());
    story.fails_whole_round();
    REQUIRE(story.group.phase == Phase::backing_off);
    WHEN("SIGINT arrives") {
      THEN("it ends at once") { CHECK(finished_with(story.signal(SIGINT)) == 130); }
    }
  }
}

TEST_CASE("pre-emption gives a window of its own and the code to requeue", "[agent][supervisor]") {
  Story story{2, 5};
  story.group.stop.preempt_signals = {SIGTERM, SIGUSR1};
  story.group.stop.preempt_grace = seconds{60};
  story.running();
  const auto actions = story.signal(SIGUSR1);
  CHECK(find<SignalWorkers>(actions)->signo == SIGUSR1);
  CHECK(find<ArmTimer>(actions)->after == seconds{60});
  CHECK(find<TellStopping>(actions)->preempted);
  story.exits(0, Exited{0});
  story.exits(1, Exited{0});
  CHECK(finished_with(story.emptied()) == 75);
}

TEST_CASE("Ctrl-C in the terminal that the one worker has is the user's wish, not a failure",
          "[agent][supervisor]") {
  Story story{1, 5};
  story.group.terminal.rank = LocalRank{0};
  story.running();
  story.exits(0, Signaled{SIGINT});
  CHECK(finished_with(story.emptied()) == 130);
}

SCENARIO("a worker can't be started", "[agent][supervisor]") {
  Story story{2, 5};
  step(story.group, Began{story.now});
  WHEN("the program doesn't exist") {
    const auto actions = step(story.group, StartFailed{{LocalRank{0}, ENOENT, "exec"}, story.now});
    CHECK(find<KillAll>(actions) != nullptr);
    THEN("there is no restart, and the code is the shell's") {
      CHECK(finished_with(story.emptied()) == 127);
    }
  }
  WHEN("it may not be executed") {
    step(story.group, StartFailed{{LocalRank{0}, EACCES, "exec"}, story.now});
    CHECK(finished_with(story.emptied()) == 126);
  }
  WHEN("the system is short of processes") {
    int tries = 0;
    for (;; ++tries) {
      step(story.group, StartFailed{{LocalRank{1}, EAGAIN, "clone"}, story.now});
      const auto actions = story.emptied();
      if (find<Finish>(actions) != nullptr) {
        CHECK(finished_with(actions) == 71);
        break;
      }
      CHECK((find<TellStartRetry>(actions) != nullptr) ==
            (tries == 0));  // said once, not twenty times
      story.now += find<ArmTimer>(actions)->after;
      CHECK(find<StartRound>(step(story.group, TimerFired{Timer::backoff, story.now}))->round ==
            Round{0});
    }
    THEN("it is tried again for 5 s, which costs no restart") {
      CHECK(tries == 20);
      CHECK(story.group.ledger.restarts == 0);
    }
  }
}

TEST_CASE("without its guardian the agent kills at once", "[agent][supervisor]") {
  Story story{2, 5};
  story.running();
  const auto actions = step(story.group, GuardianLost{story.now});
  CHECK(find<KillAll>(actions) != nullptr);
  story.exits(0, Signaled{SIGKILL});
  story.exits(1, Signaled{SIGKILL});
  CHECK(finished_with(story.emptied()) == 70);
}

TEST_CASE(
    "workers that saved after a Ctrl-C were killed as Python's subprocess.run killed acc-launch",
    "[agent][supervisor]") {
  Story story{2, 5};
  story.running();
  step(story.group, SignalArrived{SIGINT, story.now});
  const auto actions = step(story.group, GuardianLost{story.now});
  CHECK(find<KillAll>(actions) == nullptr);
  CHECK(find<KillAll>(step(story.group, GuardianLost{story.now})) == nullptr);  // the same death
  SECTION("the grace ends") {
    const auto later = story.after(seconds{13}, TimerFired{Timer::grace, {}});
    CHECK(find<KillAll>(later) == nullptr);  // SIGTERM, as after any Ctrl-C
    CHECK(find<KillAll>(story.after(seconds{2}, TimerFired{Timer::grace, {}})) != nullptr);
  }
  SECTION("the agent gets SIGTERM later") {
    CHECK(find<KillAll>(step(story.group, GuardianLost{story.now + seconds{2}})) != nullptr);
  }
  story.exits(0, Exited{0});
  story.exits(1, Signaled{SIGKILL});
  CHECK(finished_with(story.emptied()) == 70);
}

TEST_CASE("no sequence of events starts a round before the last one is empty (P1)",
          "[agent][supervisor]") {
  // Every event in every phase, in an order drawn from a seed; the model below counts what may
  // live.
  for (std::uint32_t seed = 1; seed <= 2000; ++seed) {
    std::uint32_t dice = seed * 2654435761U + 1;
    const auto roll = [&](std::uint32_t n) {
      dice = dice * 1664525U + 1013904223U;
      return (dice >> 8U) % n;
    };
    Story story{1 + roll(4), roll(4)};
    std::vector<bool> lives(story.group.size, false);
    std::size_t finishes = 0;
    std::uint64_t last_round = 0;
    const auto feed = [&](const Event& event, const auto& self) -> void {
      for (const auto& action : step(story.group, event)) {
        if (const auto* start = std::get_if<StartRound>(&action)) {
          REQUIRE(std::ranges::count(lives, true) == 0);
          REQUIRE(start->round.value() >= last_round);
          last_round = start->round.value();
          if (roll(8) == 0) {
            self(StartFailed{{LocalRank{0}, roll(2) == 0 ? EAGAIN : ENOENT, "clone"}, story.now},
                 self);
          } else {
            lives.assign(lives.size(), true);
            self(RoundStarted{story.now}, self);
          }
        }
        if (std::holds_alternative<Finish>(action)) {
          ++finishes;
          if (std::get<Finish>(action).end.outcome != Outcome::unkillable)
            REQUIRE(std::ranges::count(lives, true) == 0);
        }
      }
    };
    feed(Began{story.now}, feed);
    for (int i = 0; i < 200 && finishes == 0; ++i) {
      story.now += Millis{roll(3000)};
      switch (roll(5)) {
        case 0:
        case 1: {
          const auto who = roll(story.group.size);
          if (!lives[who]) break;
          lives[who] = false;
          feed(WorkerExited{LocalRank{who},
                            roll(2) == 0 ? ExitStatus{Exited{0}} : ExitStatus{Signaled{6}},
                            story.now, false, roll(2) == 0},
               feed);
          break;
        }
        case 2:
          if (std::ranges::count(lives, true) == 0)
            feed(Emptied{story.now, roll(2) == 0, 0.5}, feed);
          break;
        case 3:
          feed(TimerFired{static_cast<Timer>(roll(kTimers)), story.now}, feed);
          break;
        default:
          if (roll(10) == 0) feed(SignalArrived{roll(2) == 0 ? SIGTERM : SIGUSR1, story.now}, feed);
      }
    }
    REQUIRE(finishes <= 1);
  }
}

TEST_CASE("a signal after the decisive failure doesn't hide the failure", "[agent][supervisor]") {
  Story story{2, 0};
  story.group.stop.preempt_signals = {SIGTERM};
  story.running();
  story.exits(0, Exited{7});
  story.signal(SIGTERM);
  story.exits(1, Signaled{SIGTERM});
  CHECK(finished_with(story.emptied()) == 7);  // 75 would have the job requeued for ever
}

TEST_CASE("a signal while only left-overs are ended doesn't hide the success",
          "[agent][supervisor]") {
  Story story{1};
  story.running();
  story.exits(0, Exited{0});
  story.signal(SIGTERM);
  CHECK(finished_with(story.emptied()) == 0);
}

SCENARIO("a job is stopped while its workers are still being made", "[agent][supervisor]") {
  Story story{2, 5};
  step(story.group, Began{story.now});
  WHEN("by Ctrl-C") {
    CHECK(find<KillAll>(story.signal(SIGINT)) != nullptr);
    CHECK(story.signal(SIGINT).empty());
    CHECK(finished_with(story.emptied()) == 130);
  }
  WHEN("by the loss of its guardian") {
    CHECK(find<KillAll>(step(story.group, GuardianLost{story.now})) != nullptr);
    CHECK(finished_with(story.emptied()) == 70);
  }
}

TEST_CASE("a start that was refused before it was tried is not tried again",
          "[agent][supervisor]") {
  Story story{2};
  step(story.group, Began{story.now});
  step(story.group,
       StartFailed{{LocalRank{0}, EMFILE, "descriptors", "too few descriptors"}, story.now});
  CHECK(finished_with(story.emptied()) == 71);
}

TEST_CASE("a program that can't be executed any more ends those that run it already",
          "[agent][supervisor]") {
  Story story{2};
  story.running();
  const StartFailed gone{{LocalRank{1}, ENOENT, "exec", {}}, story.now};
  CHECK(find<KillAll>(step(story.group, gone)) != nullptr);
  CHECK(step(story.group, gone).empty());
  story.exits(1, Exited{127});
  story.exits(0, Signaled{SIGKILL});
  CHECK(finished_with(story.emptied()) == 127);
}

SCENARIO("what a worker leaves behind gets a moment to exit by itself", "[agent][supervisor]") {
  Story story{1};
  story.group.stop.grace = seconds{15};
  story.running();
  const auto actions = story.exits(0, Exited{0});
  REQUIRE(find<ArmTimer>(actions) != nullptr);
  CHECK(find<ArmTimer>(actions)->timer == Timer::left_over);
  CHECK(find<ArmTimer>(actions)->after == Millis{150});
  CHECK(find<TerminateEscaped>(actions) == nullptr);
  WHEN("it does") { CHECK(finished_with(story.emptied()) == 0); }
  WHEN("it doesn't") {
    CHECK(find<TerminateEscaped>(step(story.group, TimerFired{Timer::left_over, story.now})) !=
          nullptr);
    CHECK(story.group.left_overs_due);
  }
  WHEN("the grace is shorter than that") {
    Story hurried{1};
    hurried.group.stop.grace = Millis{100};
    hurried.running();
    CHECK(find<ArmTimer>(hurried.exits(0, Exited{0}))->after == Millis{50});
  }
}

SCENARIO("what a worker left was killed unasked, as another worker hung until the end of the grace",
         "[agent][supervisor]") {
  Story story{2};
  story.running();
  story.exits(0, Exited{5});  // rank 1 hangs: its SIGTERM is of no use
  REQUIRE(story.group.phase == Phase::stopping);
  CHECK(find<TerminateEscaped>(step(story.group, TimerFired{Timer::left_over, story.now})) !=
        nullptr);
  CHECK_FALSE(story.group.left_overs_due);  // of rank 1 nothing was asked yet
  const auto actions = story.exits(1, Signaled{SIGTERM});
  CHECK(find<ArmTimer>(actions)->timer == Timer::left_over);
}

SCENARIO("what a worker started is asked before it is killed, also if the worker took all the time",
         "[agent][supervisor]") {
  Story story{1};
  story.group.stop.grace = seconds{15};
  story.running();
  step(story.group, SignalArrived{SIGTERM, story.now});
  story.exits(0, Exited{0});
  const auto actions = step(story.group, TimerFired{Timer::grace, story.now});
  CHECK(find<KillAll>(actions) == nullptr);
  CHECK(find<TerminateEscaped>(actions) != nullptr);
  REQUIRE(find<ArmTimer>(actions) != nullptr);
  CHECK(find<ArmTimer>(actions)->timer == Timer::grace);
  CHECK(find<ArmTimer>(actions)->after == Millis{150});
  CHECK(find<KillAll>(step(story.group, TimerFired{Timer::grace, story.now})) != nullptr);
}

SCENARIO("the window after a pre-emption signal ends", "[agent][supervisor]") {
  GIVEN("a worker that noted SIGUSR1 and goes on") {
    Story story{1};
    story.group.stop.preempt_signals = {SIGUSR1};
    story.group.stop.preempt_grace = seconds{60};
    story.running();
    story.signal(SIGUSR1);
    WHEN("the scheduler sends SIGTERM") {
      const auto actions = story.signal(SIGTERM);
      THEN("it is passed on, with the usual grace") {
        CHECK(find<SignalWorkers>(actions)->signo == SIGTERM);
        CHECK(find<ArmTimer>(actions)->after == seconds{15});
      }
    }
    WHEN("the window is over") {
      const auto actions = story.after(seconds{60}, TimerFired{Timer::grace, {}});
      THEN("SIGTERM comes before SIGKILL") {
        CHECK(find<SignalWorkers>(actions)->signo == SIGTERM);
        CHECK(find<KillAll>(actions) == nullptr);
      }
      AND_WHEN("the grace is over, too") {
        const auto killing = story.after(seconds{15}, TimerFired{Timer::grace, {}});
        THEN("it is killed") { CHECK(find<KillAll>(killing) != nullptr); }
      }
    }
  }
}

TEST_CASE("what is told about a kill is the grace that was given", "[agent][supervisor]") {
  Story story{1};
  story.running();
  story.signal(SIGINT);
  story.signal(SIGINT);
  const auto actions = story.after(seconds{2}, TimerFired{Timer::grace, {}});
  CHECK(find<TellKilling>(actions)->after == seconds{2});
}

TEST_CASE("a worker that has the terminal may answer Ctrl-C with the shell's code",
          "[agent][supervisor]") {
  Story story{2, 5};
  story.group.terminal.rank = LocalRank{0};
  story.running();
  const auto actions = story.exits(0, Exited{130});
  CHECK(find<SignalWorkers>(actions)->signo == SIGTERM);  // the other one doesn't know yet
  story.exits(1, Signaled{SIGTERM});
  CHECK(finished_with(story.emptied()) == 130);
}

SCENARIO("a script that answers Ctrl-C by sys.exit(1) was started again", "[agent][supervisor]") {
  Story story{2, 5};
  story.group.terminal.rank = LocalRank{0};
  story.running();
  const auto press = [&] { return step(story.group, TerminalInterrupted{story.now}); };
  const auto no_press = [&] { return step(story.group, TimerFired{Timer::interrupt, story.now}); };
  const auto other_ends = [&] { return story.exits(1, Signaled{SIGTERM}), story.emptied(); };

  GIVEN("a Ctrl-C that went to it alone") {
    CHECK(press().empty());
    WHEN("it fails soon after that") {
      story.now += seconds{20};
      const auto actions = story.exits(0, Exited{1});
      THEN("the job is stopped by SIGINT") {
        CHECK(find<SignalWorkers>(actions)->signo == SIGTERM);
        CHECK(find<TellFailure>(actions) == nullptr);
        CHECK(finished_with(other_ends()) == 130);
        CHECK(story.group.stop_signal == SIGINT);
      }
      THEN("the next Ctrl-C, which is ours, is the second") {
        CHECK(find<TellHurry>(story.signal(SIGINT)) != nullptr);
        CHECK(find<KillAll>(story.signal(SIGINT)) != nullptr);
      }
    }
    WHEN("it crashes on its way out") {
      story.exits(0, Signaled{SIGABRT});
      CHECK(finished_with(other_ends()) == 130);
    }
    WHEN("it ends with 0") {
      CHECK(story.exits(0, Exited{0}).empty());
      THEN("the others go on, and their failure is one") {
        CHECK(find<TellFailure>(story.exits(1, Exited{7})) != nullptr);
        CHECK(find<StartRound>(story.emptied()) != nullptr);
      }
    }
    WHEN("another worker fails") {
      CHECK(find<TellFailure>(story.exits(1, Exited{7})) != nullptr);
      story.exits(0, Exited{1});
      CHECK(find<StartRound>(story.emptied()) != nullptr);
    }
    WHEN("it is killed, as by the kernel that is out of memory") {
      CHECK(find<TellFailure>(story.exits(0, Signaled{SIGKILL})) != nullptr);
      CHECK(find<StartRound>(other_ends()) != nullptr);
    }
    WHEN("it reports a failure after which no restart helps") {
      step(story.group, WorkerExited{LocalRank{0}, Exited{7}, story.now, true});
      CHECK(finished_with(other_ends()) == 7);
    }
    WHEN("it went on, and fails much later") {
      story.now += seconds{31};
      CHECK(find<ArmTimer>(story.exits(0, Exited{1}))->timer == Timer::interrupt);
      CHECK(find<TellFailure>(no_press()) != nullptr);
      CHECK(find<StartRound>(other_ends()) != nullptr);
      THEN("the next attempt knows nothing of it") {
        step(story.group, RoundStarted{story.now});
        story.exits(0, Exited{1});
        CHECK(find<TellFailure>(no_press()) != nullptr);
      }
    }
    WHEN("it saves for longer, and --grace grants that") {
      story.group.stop.grace = seconds{120};
      story.now += seconds{119};
      story.exits(0, Exited{1});
      CHECK(finished_with(other_ends()) == 130);
    }
  }
  GIVEN("a worker that ended at once, so that its exit is seen before the Ctrl-C") {
    const auto actions = story.exits(0, Exited{1});
    CHECK(find<SignalWorkers>(actions) == nullptr);
    CHECK(find<ArmTimer>(actions)->after <= Millis{100});
    story.now += Millis{20};
    WHEN("the Ctrl-C follows") {
      CHECK(find<SignalWorkers>(press())->signo == SIGTERM);
      CHECK(finished_with(other_ends()) == 130);
    }
    WHEN("the other worker fails for want of it, and then the Ctrl-C follows") {
      CHECK(story.exits(1, Exited{3}).empty());
      press();
      CHECK(finished_with(story.emptied()) == 130);
    }
    WHEN("the other worker fails for want of it, and no Ctrl-C follows") {
      CHECK(story.exits(1, Exited{3}).empty());
      CHECK(step(story.group, HangFound{LocalRank{1}, "hung", story.now}).empty());
      const auto told = no_press();
      REQUIRE(find<TellFailure>(told) != nullptr);
      CHECK(find<TellFailure>(told)->failure.local_rank == LocalRank{0});
      CHECK(find<StartRound>(story.emptied()) != nullptr);
    }
    WHEN("another signal ends the job meanwhile") {
      story.signal(SIGTERM);
      CHECK(no_press().empty());
      CHECK(finished_with(other_ends()) == 143);
    }
  }
}

SCENARIO("the ranks that failed for want of a failed one were named in its place",
         "[agent][supervisor]") {
  Story story{3, 1};
  story.running();
  const auto follows = [&](std::uint32_t rank, ExitStatus status) {
    return step(story.group, WorkerExited{LocalRank{rank}, status, story.now, false, true});
  };
  const auto named = [](const Actions& actions) {
    const auto* told = find<TellFailure>(actions);
    return told != nullptr ? static_cast<int>(told->failure.local_rank.value()) : -1;
  };
  GIVEN("a rank whose call failed as another one had left") {
    const auto held = follows(1, Exited{1});
    CHECK(find<SignalWorkers>(held) == nullptr);
    REQUIRE(find<ArmTimer>(held) != nullptr);
    CHECK(find<ArmTimer>(held)->timer == Timer::culprit);
    story.now += Millis{250};
    WHEN("that one exits later, with another code") {
      CHECK(named(story.exits(2, Exited{42})) == 2);
      THEN("its code decides what follows") {
        story.exits(0, Signaled{SIGTERM});
        story.group.restart.never_retry = {{42, 42}};
        CHECK(finished_with(story.emptied()) == 42);
      }
      THEN("the timer changes nothing") {
        CHECK(step(story.group, TimerFired{Timer::culprit, story.now}).empty());
      }
    }
    WHEN("more of its kind follow") {
      CHECK(follows(0, Signaled{SIGABRT}).empty());
      THEN("the last worker is the cause, however it fails") {
        CHECK(named(follows(2, Signaled{SIGKILL})) == 2);
      }
      THEN("the first is named at once if the last failed for the same reason") {
        CHECK(named(follows(2, Exited{1})) == 1);
      }
      THEN("the first is named at once if the last had completed") {
        CHECK(named(story.exits(2, Exited{0})) == 1);
      }
    }
    WHEN("nobody else fails in time") {
      story.now += Millis{1'750};
      CHECK(named(step(story.group, TimerFired{Timer::culprit, story.now})) == 1);
      THEN("the time for which the failure was held back counted as work") {
        CHECK(lost_since(story.group, story.now) == story.now - Millis{2'000});
      }
      THEN("the next round begins without it") {
        story.exits(0, Signaled{SIGTERM});
        story.exits(2, Signaled{SIGTERM});
        story.next_round(story.emptied());
        CHECK(story.group.phase == Phase::running);
        CHECK(step(story.group, TimerFired{Timer::culprit, story.now}).empty());
      }
    }
    WHEN("a restart is asked for meanwhile") {
      THEN("its failure is told first, and a round follows") {
        CHECK(named(step(story.group, RestartAsked{story.now})) == 1);
        CHECK_FALSE(story.group.held_failure);
        story.exits(0, Signaled{SIGTERM});
        story.exits(2, Signaled{SIGTERM});
        story.next_round(story.emptied());
        CHECK(story.group.phase == Phase::running);
      }
    }
    WHEN("the scheduler preempts the job meanwhile") {
      story.group.stop.preempt_signals = {SIGTERM};
      story.group.restart.max_restarts = 0;
      story.signal(SIGTERM);
      story.exits(0, Signaled{SIGTERM});
      story.exits(2, Signaled{SIGTERM});
      THEN("it has failed") { CHECK(finished_with(story.emptied()) == 1); }
    }
  }
  GIVEN("a rank that also says that no restart helps") {
    CHECK(named(step(story.group, WorkerExited{LocalRank{1}, Exited{1}, story.now, true, true})) ==
          1);
  }
  GIVEN("a rank that was killed after its call had failed") {
    CHECK(named(follows(1, Signaled{SIGKILL})) == 1);
  }
  GIVEN("the terminal's rank, whose call failed as Ctrl-C had ended it") {
    story.group.terminal.rank = LocalRank{0};
    follows(0, Exited{1});
    CHECK(named(step(story.group, TerminalInterrupted{story.now})) == -1);
    CHECK(story.group.stop_signal == SIGINT);
  }
  GIVEN("the terminal's rank that failed first, and another one that follows before it") {
    story.group.terminal.rank = LocalRank{0};
    follows(1, Exited{1});
    CHECK(named(story.exits(0, Exited{42})) == -1);
    CHECK(step(story.group, TimerFired{Timer::culprit, story.now}).empty());
    CHECK(named(step(story.group, TimerFired{Timer::interrupt, story.now})) == 0);
  }
}

// ---- asked over the control socket ----

SCENARIO("a restart is asked for over the control socket", "[agent][supervisor]") {
  GIVEN("two workers and no restart in the budget") {
    Story story{2, 0};
    story.running();
    WHEN("it is asked for") {
      const auto asked = story.after(seconds{3}, RestartAsked{story.now});
      THEN("the workers are asked to end, and told of a grace") {
        CHECK(find<SignalWorkers>(asked)->signo == SIGTERM);
        CHECK(find<TellRestartAsked>(asked) != nullptr);
        CHECK(story.group.phase == Phase::stopping);
      }
      THEN("whatever they end with, the next round follows at once and costs no restart") {
        story.exits(0, Exited{3});
        story.exits(1, Signaled{SIGTERM});
        const auto next = story.emptied();
        REQUIRE(find<StartRound>(next) != nullptr);
        CHECK(find<StartRound>(next)->round == Round{1});
        CHECK(story.group.ledger.restarts == 1);
        CHECK(story.group.ledger.budget_used == 0);
        AND_THEN("a failure of that round is one without a restart left") {
          step(story.group, RoundStarted{story.now});
          const auto end = story.fails_whole_round(Exited{7});
          REQUIRE(find<Finish>(end) != nullptr);
          CHECK(find<Finish>(end)->end.exit_code == 7);
        }
      }
      THEN("a signal that comes before the workers' end stops the job instead") {
        story.signal(SIGTERM);
        story.exits(0, Signaled{SIGTERM});
        story.exits(1, Signaled{SIGTERM});
        const auto end = story.emptied();
        REQUIRE(find<Finish>(end) != nullptr);
        CHECK(find<Finish>(end)->end.outcome == Outcome::stopped);
        CHECK(find<Finish>(end)->end.exit_code == 143);
      }
      THEN("asking again changes nothing") {
        CHECK(story.after(seconds{0}, RestartAsked{story.now}).empty());
      }
    }
    WHEN("it is asked for while a failed round is ending") {
      story.exits(0, Exited{7});
      CHECK(story.after(seconds{0}, RestartAsked{story.now}).empty());
      story.exits(1, Signaled{SIGTERM});
      THEN("the job goes on although no restart was left") {
        CHECK(find<StartRound>(story.emptied()) != nullptr);
      }
      THEN("a signal meanwhile leaves the failure as the job's end") {
        story.signal(SIGTERM);
        const auto end = story.emptied();
        REQUIRE(find<Finish>(end) != nullptr);
        CHECK(find<Finish>(end)->end.exit_code == 7);
      }
    }
  }
  GIVEN("a job that waits for its restart") {
    Story story{1, 3};
    story.group.restart.delay_base = seconds{30};
    story.running();
    story.next_round(story.fails_whole_round());
    story.fails_whole_round();
    REQUIRE(story.group.phase == Phase::backing_off);
    THEN("asked for, it comes now") {
      CHECK(find<StartRound>(story.after(seconds{1}, RestartAsked{story.now})) != nullptr);
      CHECK(story.group.ledger.budget_used == 2);
    }
  }
}

TEST_CASE("a restart that can't be had is refused with the reason", "[agent][supervisor]") {
  const auto why = [](const Story& story) { return std::string{why_no_restart(story.group)}; };
  Story story{1, 0};
  CHECK(why(story) == "its workers are just being started");
  story.running();
  CHECK(why(story).empty());
  SECTION("while the job is being stopped") {
    story.signal(SIGTERM);
    CHECK(why(story) == "the job is being stopped");
    CHECK(step(story.group, RestartAsked{story.now}).empty());
  }
  SECTION("when the workers have completed") {
    story.exits(0, Exited{0});
    CHECK(why(story) == "its workers have completed");
    CHECK(step(story.group, RestartAsked{story.now}).empty());
    CHECK(find<Finish>(story.emptied())->end.outcome == Outcome::succeeded);
    CHECK(why(story) == "the job is over");
  }
  SECTION("on several nodes") {
    story.group.coordinated = true;
    CHECK(why(story).find("coordinator of its nodes isn't reached") != std::string::npos);
    CHECK(step(story.group, RestartAsked{story.now}).empty());
    story.group.is_connected = true;
    CHECK(why(story).empty());
    const auto asked = step(story.group, RestartAsked{story.now});
    CHECK(find<AskRestart>(asked) != nullptr);
    CHECK(asked.size() == 1);  // the coordinator decides; the workers run on
  }
}

SCENARIO("a stop is asked for over the control socket", "[agent][supervisor]") {
  Story story{2, 5};
  story.running();
  const auto asked = [&](std::optional<Millis> grace) {
    return story.after(seconds{0}, StopAsked{grace, story.now});
  };
  const auto armed = [](const Actions& actions) {
    const auto* timer = find<ArmTimer>(actions);
    return timer == nullptr ? Millis{-1} : timer->after;
  };
  WHEN("a grace is named") {
    const auto actions = asked(seconds{5});
    THEN("it is as SIGTERM with that grace") {
      CHECK(find<SignalWorkers>(actions)->signo == SIGTERM);
      CHECK(armed(actions) == seconds{5});
      story.exits(0, Signaled{SIGTERM});
      story.exits(1, Signaled{SIGTERM});
      CHECK(find<Finish>(story.emptied())->end.exit_code == 143);
    }
    THEN("a second one shortens it") {
      story.now += seconds{1};
      CHECK(armed(asked(seconds{2})) == seconds{2});
    }
    THEN("a second one never lengthens it") {
      story.now += seconds{1};
      CHECK(asked(seconds{60}).empty());
      CHECK(story.group.grace.ends == Instant{} + seconds{5});
    }
    THEN("a grace of 0 kills now") {
      CHECK(find<KillAll>(asked(Millis{0})) != nullptr);
      CHECK(story.group.phase == Phase::killing);
    }
  }
  WHEN("the grace is longer than the plan's") {
    THEN("the first stop has it") { CHECK(armed(asked(seconds{60})) == seconds{60}); }
  }
  WHEN("no grace is named") {
    THEN("it is the plan's") { CHECK(armed(asked(std::nullopt)) == story.group.stop.grace); }
  }
}

TEST_CASE("a worker that hangs fails, though it lives: all are stopped, then restarted",
          "[agent][supervisor]") {
  Story story{3, 1};
  story.running();
  const auto actions =
      story.after(seconds{30}, HangFound{LocalRank{1}, "hung: no heartbeat", story.now});
  REQUIRE(find<TellFailure>(actions) != nullptr);
  CHECK(find<TellFailure>(actions)->failure.hang == "hung: no heartbeat");
  CHECK(find<SignalWorkers>(actions)->signo == SIGTERM);
  CHECK(find<ArmTimer>(actions)->timer == Timer::grace);
  CHECK(story.group.phase == Phase::stopping);
  CHECK(story.group.first_failure->local_rank == LocalRank{1});
  for (std::uint32_t i = 0; i < 3; ++i) story.exits(i, Signaled{SIGTERM});
  CHECK(find<StartRound>(story.emptied()) != nullptr);
}

TEST_CASE("a hang without a restart left ends the job with 124, its code may forbid a restart",
          "[agent][supervisor]") {
  for (const bool is_forbidden : {false, true}) {
    Story story{1, is_forbidden ? 3U : 0U};
    if (is_forbidden) story.group.restart.never_retry = {{124, 124}};
    story.running();
    story.after(seconds{30}, HangFound{LocalRank{0}, "hung", story.now});
    story.exits(0, Signaled{SIGKILL});
    const auto actions = story.emptied();
    REQUIRE(find<Finish>(actions) != nullptr);
    CHECK(find<Finish>(actions)->end.exit_code == 124);
  }
}

TEST_CASE("a hang that is found while the workers are ending anyway is nothing",
          "[agent][supervisor]") {
  Story story{2, 1};
  story.running();
  story.exits(0, Exited{7});
  CHECK(step(story.group, HangFound{LocalRank{1}, "hung", story.now}).empty());
  CHECK(story.group.first_failure->local_rank == LocalRank{0});
}

TEST_CASE("only a signal, the job's end or an order for good ends a job for good",
          "[agent][supervisor]") {
  GroupState group;
  CHECK_FALSE(ends_for_good(group));
  SECTION("a signal") { group.stop_signal = SIGTERM; }
  SECTION("the job's end") { group.orders.close = JobClosed{}; }
  SECTION("an order") {
    group.orders.stop = StopOrdered{};
    CHECK_FALSE(ends_for_good(group));  // for another round
    group.orders.stop->for_good = true;
  }
  CHECK(ends_for_good(group));
}
