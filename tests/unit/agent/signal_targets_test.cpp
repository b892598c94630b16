#include "agent/signal_targets.hpp"

#include <catch2/catch.hpp>

#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <initializer_list>
#include <string>
#include <vector>

using namespace acc::agent;

namespace {

using Pids = std::vector<pid_t>;

std::string words(std::initializer_list<const char*> all) {
  std::string text;
  for (const char* word : all) text.append(word).push_back('\0');
  return text;
}

const std::string kPython = "/usr/bin/python3.11";
const std::string kTrain = words({"python3", "-u", "train.py"});
constexpr pid_t kGroup = 10;
constexpr pid_t kSession = 1;

}  // namespace

SCENARIO("data loaders were killed by the SIGTERM at which the worker was to save", "[agent]") {
  const std::vector<RankProcess> table{
      {10, 1, kGroup, kSession, kPython, kTrain},
      {11, 10, kGroup, kSession, kPython, kTrain},
      {12, 10, kGroup, kSession, kPython, kTrain},
      {13, 12, kGroup, kSession, kPython, kTrain},
      {14, 12, kGroup, kSession, "/usr/bin/ffmpeg", words({"ffmpeg", "-i", "x"})},
  };
  const auto targets = signal_targets(table);
  CHECK(targets.programs == Pids{10, 14});
  CHECK(targets.helpers == Pids{11, 12, 13});
}

SCENARIO("processes of Python's multiprocessing are helpers, however they were started",
         "[agent]") {
  const char* const spawned = "from multiprocessing.spawn import spawn_main; spawn_main(…)";
  const char* const tracker = "from multiprocessing.resource_tracker import main;main(6)";
  const char* const server = "from multiprocessing.forkserver import main; main(…)";
  const char* const dill = "from multiprocess.resource_tracker import main;main(6)";
  const std::vector<RankProcess> table{
      {10, 1, kGroup, kSession, kPython, kTrain},
      {11, 10, kGroup, kSession, kPython,
       words({"python3", "-c", spawned, "--multiprocessing-fork"})},
      {12, 10, kGroup, kSession, kPython, words({"python3", "-u", "-c", tracker})},
      {13, 10, kGroup, kSession, kPython, words({"python3", "-c", server})},
      {14, 13, kGroup, kSession, kPython, words({"python3", "-c", server})},
      {15, 10, kGroup, kSession, kPython, words({"python3", "-c", dill})},
      {16, 10, kGroup, kSession, kPython, words({"python3", "-c", "import multiprocessing"})},
      {17, 10, kGroup, kSession, kPython, words({"python3", "from multiprocessing.py"})},
  };
  const auto targets = signal_targets(table);
  CHECK(targets.programs == Pids{10, 16, 17});
  CHECK(targets.helpers == Pids{11, 12, 13, 14, 15});
}

SCENARIO("a worker that is a shell around a program passes a signal on to it", "[agent]") {
  const std::string shell = "/usr/bin/bash";
  const auto script = words({"bash", "run.sh"});
  const std::vector<RankProcess> table{
      {10, 1, kGroup, kSession, shell, script},
      {11, 10, kGroup, kSession, shell, script},  // ( … ) or f &
      {12, 11, kGroup, kSession, kPython, kTrain},
      {13, 12, kGroup, kSession, kPython, kTrain},
      {14, 10, kGroup, kSession, shell, words({"bash", "other.sh"})},
  };
  const auto targets = signal_targets(table);
  CHECK(targets.programs == Pids{10, 12, 14});
  CHECK(targets.helpers == Pids{11, 13});
}

SCENARIO("a process is no helper where it can't be known", "[agent]") {
  const std::vector<RankProcess> table{
      {10, 1, kGroup, kSession, "", kTrain},
      {11, 10, kGroup, kSession, "", kTrain},
      {13, 10, kGroup, kSession, "/opt/python3", kTrain},
  };
  const auto targets = signal_targets(table);
  CHECK(targets.programs == Pids{10, 11, 13});
  CHECK(targets.helpers.empty());
}

SCENARIO("the program behind `timeout` in a script got no signal, or two", "[agent]") {
  const std::string shell = "/usr/bin/bash";
  const auto script = words({"bash", "run.sh"});
  const std::vector<RankProcess> table{
      {10, 1, kGroup, kSession, shell, script},
      {11, 10, 11, kSession, "/usr/bin/timeout", words({"timeout", "23h", "python3", "train.py"})},
      {12, 11, 11, kSession, kPython, kTrain},
      {13, 12, 11, kSession, kPython, kTrain},
      {14, 12, 11, kSession, "/usr/bin/ffmpeg", words({"ffmpeg"})},
  };
  const auto targets = signal_targets(table);
  CHECK(targets.programs == Pids{10, 12, 14});
  CHECK(targets.helpers == Pids{13});
}

SCENARIO("a program got the signal twice whose script passes it on", "[agent]") {
  const auto script = words({"bash", "entry.sh"});
  std::vector<RankProcess> table{
      {10, 1, kGroup, kSession, "/usr/bin/bash", script, Trap::set},
      {11, 10, kGroup, kSession, kPython, kTrain, Trap::none, true},
      {12, 11, kGroup, kSession, "/usr/bin/ffmpeg", words({"ffmpeg"})},
      {13, 10, kGroup, kSession, kPython, words({"python3", "other.py"})},  // in the foreground
  };
  CHECK(signal_targets(table).programs == Pids{10, 13});
  CHECK(signal_targets(table).served == Pids{11, 12});
  CHECK(signal_targets(table, true).programs == Pids{10, 11, 12, 13});  // it has it from elsewhere
  table[0].trap = Trap::none;                                           // it dies of it
  CHECK(signal_targets(table).programs == Pids{10, 11, 12, 13});
}

SCENARIO(
    "a `timeout` below a script that passes the signal on was taken for one whose program had it",
    "[agent]") {
  const auto timeout = words({"timeout", "23h", "python3", "train.py"});
  const auto script = words({"bash", "inner.sh"});
  std::vector<RankProcess> table{
      {10, 1, kGroup, kSession, "/usr/bin/bash", words({"bash", "entry.sh"}), Trap::set},
      {11, 10, kGroup, kSession, "/usr/bin/bash", script, Trap::none, true},
      {12, 11, 12, kSession, "/usr/bin/timeout", timeout},
      {13, 12, 12, kSession, kPython, kTrain},
  };
  CHECK(signal_targets(table).programs == Pids{10});
  CHECK(signal_targets(table).timeouts.empty());
  table[0].trap = Trap::none;
  CHECK(signal_targets(table).programs == Pids{10, 11, 13});
  CHECK(signal_targets(table).timeouts == Pids{12});
}

SCENARIO(
    "what runs in the foreground of a script with a trap was taken for a job with an ampersand",
    "[agent]") {
  const auto both = signal_bit(SIGINT) | signal_bit(SIGQUIT);
  const SignalSets script{};
  CHECK(was_started_in_background(script, {0, both, 0}, true));
  CHECK(was_started_in_background(script, {0, both, 0}, false));
  CHECK(was_started_in_background(script, {0, signal_bit(SIGQUIT), signal_bit(SIGINT)}, false));
  CHECK(was_started_in_background(script, {0, signal_bit(SIGINT), signal_bit(SIGQUIT)}, false));
  const SignalSets any_bash{0, signal_bit(SIGQUIT), 0};
  CHECK_FALSE(was_started_in_background(any_bash, any_bash, true));
  CHECK_FALSE(was_started_in_background(script, {0, signal_bit(SIGINT), 0}, false));
  CHECK_FALSE(was_started_in_background(script, {}, false));
  const SignalSets in_background_itself{0, both, 0};
  CHECK_FALSE(was_started_in_background(in_background_itself, {0, both, 0}, false));
}

SCENARIO("bash's trap for EXIT was taken for one that passes the signal on, or for none",
         "[agent]") {
  CHECK(trap_of({0, 0, signal_bit(SIGTERM)}, SIGTERM) == Trap::set);
  CHECK(trap_of({signal_bit(SIGTERM), 0, 0}, SIGTERM) == Trap::set);
  CHECK(trap_of({0, 0, signal_bit(SIGTERM)}, SIGUSR1) == Trap::none);
  // bash 5.2 with `trap … EXIT`, with one for SIGTERM as well or not.
  CHECK(trap_of({0, 0, 0x43817efb}, SIGTERM) == Trap::unclear);
  CHECK(trap_of({0, signal_bit(SIGUSR1), 0x438178fb}, SIGUSR1) == Trap::none);  // trap '' USR1
  const auto script = words({"bash", "run.sh"});
  std::vector<RankProcess> table{
      {10, 1, kGroup, kSession, "/usr/bin/bash", script, Trap::unclear},
      {11, 10, kGroup, kSession, kPython, kTrain, Trap::none, true},
      {12, 10, kGroup, kSession, kPython, words({"python3", "other.py"})},  // in the foreground
  };
  const auto targets = signal_targets(table);
  CHECK(targets.programs == Pids{10, 12});
  CHECK(targets.served == Pids{11});
  CHECK(targets.is_served_unclear);
  // Of a shell below another program it isn't seen how it ends.
  table.insert(table.begin(), {9, 1, kGroup, kSession, kPython, words({"python3", "all.py"})});
  table[1].parent = 9;
  CHECK(signal_targets(table).programs == Pids{9, 10, 11, 12});
}

SCENARIO("what `timeout` forked is no helper before it executes its program", "[agent]") {
  const auto line = words({"/usr/bin/timeout", "23h", "python3", "train.py"});
  const std::vector<RankProcess> table{
      {10, 1, kGroup, kSession, "/usr/bin/timeout", line},
      {11, 10, kGroup, kSession, "/usr/bin/timeout", line},
  };
  CHECK(signal_targets(table).programs == Pids{11});
}

SCENARIO("what a shell gave a group of its own is of the rank, and what left the session is not",
         "[agent]") {
  const RankProcess shell{10, 1, kGroup, kSession, "/usr/bin/bash", words({"bash", "-i"})};
  const RankProcess python{10, 1, kGroup, kSession, kPython, kTrain};
  const RankProcess in_group{11, 10, kGroup, kSession, kPython, kTrain};
  const RankProcess in_own{11, 10, 11, kSession, kPython, kTrain};
  const RankProcess in_session{11, 10, 11, 11, kPython, kTrain};
  const RankProcess in_another{11, 10, 77, kSession, kPython, kTrain};
  CHECK(is_of_rank(shell, in_group));
  CHECK(is_of_rank(shell, in_own));
  CHECK_FALSE(is_of_rank(shell, in_session));
  CHECK_FALSE(is_of_rank(shell, in_another));
  CHECK(is_of_rank(python, in_group));
  CHECK_FALSE(is_of_rank(python, in_own));
}

SCENARIO("what a terminal sends to a group reaches all of it", "[agent]") {
  for (const int signo : {SIGTERM, SIGHUP, SIGUSR1, SIGUSR2, SIGALRM}) CHECK(spares_helpers(signo));
  for (const int signo : {SIGINT, SIGQUIT, SIGTSTP, SIGCONT, SIGSTOP, SIGKILL, SIGWINCH})
    CHECK_FALSE(spares_helpers(signo));
}

namespace {

/// A process in a group of its own with forks in it; all end when it is killed.
struct ForkedGroup {
  explicit ForkedGroup(int forks) {
    int ready[2];
    REQUIRE(::pipe(ready) == 0);
    leader = ::fork();
    REQUIRE(leader >= 0);
    if (leader == 0) {
      ::setpgid(0, 0);
      for (int i = 0; i < forks; ++i) {
        if (::fork() == 0) break;
      }
      static_cast<void>(::write(ready[1], "x", 1));
      for (;;) ::pause();
    }
    ::close(ready[1]);
    char byte = 0;
    for (int i = 0; i <= forks; ++i) REQUIRE(::read(ready[0], &byte, 1) == 1);
    ::close(ready[0]);
  }
  ~ForkedGroup() {
    ::killpg(leader, SIGKILL);
    // All of them where a test before made this process a sub-reaper.
    while (::waitpid(-leader, nullptr, 0) > 0) continue;
  }
  pid_t leader = -1;
};

}  // namespace

SCENARIO("the forks of a living process are found as its helpers", "[agent]") {
  const ForkedGroup group{3};
  const auto found = processes_of_rank(group.leader, SIGTERM, {});
  REQUIRE(found);
  const auto targets = signal_targets(*found);
  CHECK(targets.programs == Pids{group.leader});
  CHECK(targets.helpers.size() == 3);
}

SCENARIO("a worker with very many processes holds up no loop: its whole group is signalled",
         "[agent]") {
  const ForkedGroup group{250};
  CHECK_FALSE(processes_of_rank(group.leader, SIGTERM, {}));
  CHECK_FALSE(processes_of_rank(-1, SIGTERM, {}));
}
