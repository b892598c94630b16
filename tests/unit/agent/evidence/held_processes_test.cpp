#include "agent/evidence/held_processes.hpp"

#include "agent/evidence/proc_facts.hpp"
#include "agent/evidence/tool_runs.hpp"
#include "common/duration.hpp"

#include <catch2/catch.hpp>

#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <string>
#include <thread>
#include <vector>

using namespace acc;
using namespace acc::agent::evidence;
using namespace std::chrono_literals;

namespace {

bool wait_for(const auto& is_so) {
  const auto until = clock_now() + 20s;
  while (!is_so() && clock_now() < until) ::poll(nullptr, 0, 5);
  return is_so();
}

/// A process with some threads, which all wait.
class Target {
 public:
  Target() : pid_{::fork()} {
    if (pid_ != 0) return;
    ::alarm(60);
    std::vector<std::thread> threads;
    for (int i = 0; i < 8; ++i) threads.emplace_back([] { ::pause(); });
    for (;;) ::pause();
  }
  ~Target() {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  Target(const Target&) = delete;
  Target& operator=(const Target&) = delete;
  [[nodiscard]] pid_t pid() const { return pid_; }
  [[nodiscard]] char state() const { return read_proc(pid_).state; }

 private:
  pid_t pid_;
};

// As a debugger that is ended in its attach: it stops the process, and doesn't let it go.
ToolRun stopper(pid_t pid, const std::string& more) {
  return {{"/bin/sh", "-c", more + "kill -STOP " + std::to_string(pid) + "; sleep 60"}, {}, false};
}

}  // namespace

TEST_CASE("a process that a debugger left stopped goes on, and one stopped before doesn't",
          "[agent][evidence]") {
  const bool heeds_term = GENERATE(true, false);
  CAPTURE(heeds_term);
  const Target runs;
  const Target stopped;
  ::kill(stopped.pid(), SIGSTOP);
  REQUIRE(wait_for([&] { return stopped.state() == 'T'; }));

  HeldProcesses held;
  held.note_with_children(runs.pid());
  held.note_with_children(stopped.pid());
  const std::string more = heeds_term ? "" : "trap '' TERM; ";
  std::vector<ToolRun> tools{stopper(runs.pid(), more), stopper(stopped.pid(), more)};
  // In time for a busy machine; the end of a tool is what is looked at.
  std::thread until_stopped{[&] { run_tools(tools, 2, clock_now() + 3s); }};
  const bool was_stopped = wait_for([&] { return runs.state() == 'T'; });
  until_stopped.join();
  REQUIRE(was_stopped);
  CHECK_FALSE(tools.front().is_finished);

  CHECK(wait_for([&] { return held.let_go(); }));
  CHECK(runs.state() != 'T');
  CHECK(stopped.state() == 'T');
}

TEST_CASE("no debugger is started after the deadline", "[agent][evidence]") {
  std::vector<ToolRun> tools{{{"/bin/echo", "began"}, {}, false}};
  run_tools(tools, 1, clock_now() - 1ms);
  CHECK_FALSE(tools.front().is_finished);
  CHECK(tools.front().output.empty());
}

TEST_CASE("of the processes that a rank has started the nearest are told, and how many more live",
          "[agent][evidence]") {
  const auto wait_here = [] {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (::alarm(60);;) ::pause();
  };
  const pid_t rank = ::fork();
  if (rank == 0) {
    if (::fork() == 0) ::_exit(0);  // nobody reaps it: it doesn't live
    for (int i = 0; i < 18; ++i) {
      if (::fork() != 0) continue;
      if (i == 0 && ::fork() == 0) wait_here();
      wait_here();
    }
    wait_here();
  }
  std::vector<std::string> words;
  const bool are_all_there = wait_for([&] {
    words = descendant_words(rank);
    return words.size() == 17 && words.back() == "… and 3 more below it";
  });
  CHECK(are_all_there);
  CHECK(words.front().starts_with("its child: pid "));
  CHECK(words.front().find("), state ") != std::string::npos);
  ::kill(rank, SIGKILL);
  ::waitpid(rank, nullptr, 0);
}
