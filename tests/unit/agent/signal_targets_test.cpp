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

}  // namespace

SCENARIO("data loaders were killed by the SIGTERM at which the worker was to save", "[agent]") {
  const std::vector<GroupProcess> table{
      {10, 1, kGroup, kPython, kTrain},
      {11, 10, kGroup, kPython, kTrain},
      {12, 10, kGroup, kPython, kTrain},
      {13, 12, kGroup, kPython, kTrain},
      {14, 12, kGroup, "/usr/bin/ffmpeg", words({"ffmpeg", "-i", "x"})},
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
  const std::vector<GroupProcess> table{
      {10, 1, kGroup, kPython, kTrain},
      {11, 10, kGroup, kPython, words({"python3", "-c", spawned, "--multiprocessing-fork"})},
      {12, 10, kGroup, kPython, words({"python3", "-u", "-c", tracker})},
      {13, 10, kGroup, kPython, words({"python3", "-c", server})},
      {14, 13, kGroup, kPython, words({"python3", "-c", server})},
      {15, 10, kGroup, kPython, words({"python3", "-c", dill})},
      {16, 10, kGroup, kPython, words({"python3", "-c", "import multiprocessing"})},
      {17, 10, kGroup, kPython, words({"python3", "from multiprocessing.py"})},
  };
  const auto targets = signal_targets(table);
  CHECK(targets.programs == Pids{10, 16, 17});
  CHECK(targets.helpers == Pids{11, 12, 13, 14, 15});
}

SCENARIO("a worker that is a shell around a program passes a signal on to it", "[agent]") {
  const std::string shell = "/usr/bin/bash";
  const auto script = words({"bash", "run.sh"});
  const std::vector<GroupProcess> table{
      {10, 1, kGroup, shell, script},
      {11, 10, kGroup, shell, script},  // ( … ) or f &
      {12, 11, kGroup, kPython, kTrain},
      {13, 12, kGroup, kPython, kTrain},
      {14, 10, kGroup, shell, words({"bash", "other.sh"})},
  };
  const auto targets = signal_targets(table);
  CHECK(targets.programs == Pids{10, 12, 14});
  CHECK(targets.helpers == Pids{11, 13});
}

SCENARIO("a process is no helper where it can't be known", "[agent]") {
  const std::vector<GroupProcess> table{
      {10, 1, kGroup, "", kTrain},
      {11, 10, kGroup, "", kTrain},
      {12, 10, 12, kPython, kTrain},  // in a group of its own
      {13, 10, kGroup, "/opt/python3", kTrain},
  };
  const auto targets = signal_targets(table);
  CHECK(targets.programs == Pids{10, 11, 13});
  CHECK(targets.helpers.empty());
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
  const auto found = processes_of_worker(group.leader, {});
  REQUIRE(found);
  const auto targets = signal_targets(*found);
  CHECK(targets.programs == Pids{group.leader});
  CHECK(targets.helpers.size() == 3);
}

SCENARIO("a worker with very many processes holds up no loop: its whole group is signalled",
         "[agent]") {
  const ForkedGroup group{250};
  CHECK_FALSE(processes_of_worker(group.leader, {}));
  CHECK_FALSE(processes_of_worker(-1, {}));
}
