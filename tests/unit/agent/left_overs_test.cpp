#include "agent/left_overs.hpp"

#include "agent/orphan_sweep.hpp"

#include <boost/asio/io_context.hpp>
#include <catch2/catch.hpp>

#include <poll.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <ctime>
#include <vector>

using namespace acc;
using namespace acc::agent;
using namespace std::chrono_literals;

namespace {

std::chrono::nanoseconds thread_time() {
  timespec used{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
  return std::chrono::seconds{used.tv_sec} + std::chrono::nanoseconds{used.tv_nsec};
}

/// Processes that sleep for ever, as children of this one; every `stubborn`th ignores SIGTERM.
std::vector<pid_t> make_children(std::size_t count, std::size_t stubborn = 0) {
  std::vector<pid_t> children;
  for (std::size_t i = 0; i < count; ++i) {
    const bool ignores = stubborn != 0 && i % stubborn == 0;
    const auto before = ::signal(SIGTERM, ignores ? SIG_IGN : SIG_DFL);  // not the test's handler
    const pid_t child = ::fork();
    if (child == 0) {
      for (;;) ::pause();
    }
    ::signal(SIGTERM, before);
    REQUIRE(child > 0);
    children.push_back(child);
  }
  return children;
}

void kill_and_reap(const std::vector<pid_t>& children) {
  for (const pid_t pid : children) ::kill(pid, SIGKILL);
  for (const pid_t pid : children) ::waitpid(pid, nullptr, 0);
}

/// A loop on which left-overs are ended, and the longest time that it spent in one handler.
struct Loop {
  boost::asio::io_context io{1};
  Containment containment;
  std::vector<pid_t> workers;
  std::size_t asked = 0;
  std::size_t named = 0;
  LeftOvers left_overs{io,
                       containment,
                       {[this](pid_t pid) { return std::ranges::count(workers, pid) != 0; },
                        [](pid_t) { return false; },
                        [this](const std::vector<LeftOver>& processes) {
                          asked += processes.size();
                          for (const auto& process : processes) named += !process.name.empty();
                        }}};
  std::chrono::nanoseconds longest{0};

  template <class Function>
  void measure(Function&& function) {
    const auto before = thread_time();
    function();
    longest = std::max(longest, thread_time() - before);
  }
  void run() {
    io.restart();
    for (bool more = true; more;) measure([&] { more = io.run_one() != 0; });
  }
};

/// A process in the cgroup, and below it programs with a session of their own: a shell and its
/// child. None ends by SIGTERM.
struct Family {
  pid_t parent = 0;
  pid_t shell = 0;
  pid_t last = 0;
};

Family make_family(const Containment& containment) {
  int go[2];
  int told[2];
  REQUIRE((::pipe(go) == 0 && ::pipe(told) == 0));
  const pid_t parent = ::fork();
  if (parent == 0) {
    ::setpgid(0, 0);
    ::signal(SIGTERM, SIG_IGN);
    char byte = 0;
    if (::read(go[0], &byte, 1) != 1) ::_exit(1);
    if (::fork() == 0) {
      ::setsid();
      ::dup2(told[1], 1);
      // The child tells it, as a program of its own: before that it would count as a fork.
      ::execl("/bin/sh", "sh", "-c", "sh -c 'echo $PPID $$; exec sleep 1000' & wait", nullptr);
    }
    for (;;) ::pause();
  }
  containment.adopt(parent);
  REQUIRE(::write(go[1], "x", 1) == 1);
  ::close(told[1]);
  Family family{parent, 0, 0};
  std::FILE* const pids = ::fdopen(told[0], "r");
  REQUIRE(std::fscanf(pids, "%d %d", &family.shell, &family.last) == 2);
  std::fclose(pids);
  ::close(go[0]);
  ::close(go[1]);
  return family;
}

// Of processor time: others may run on this machine, too. Instrumented code takes longer, and the
// kernel with the end of such a process: of 2,000 that were killed at once none was gone after 5 s.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr auto kLongestTurn = 100ms;
constexpr std::size_t kMany = 300;
#else
constexpr auto kLongestTurn = 10ms;
constexpr std::size_t kMany = 2'000;  // each costs the machine some milliseconds
#endif

}  // namespace

TEST_CASE("a worker's helpers have longer to exit while others wait for the cores, within bounds",
          "[agent][left_overs]") {
  CHECK(left_over_patience(150ms, 0, 2) == 150ms);
  CHECK(left_over_patience(150ms, 3, 2) == 150ms);
  CHECK(left_over_patience(150ms, 4, 2) == 300ms);
  CHECK(left_over_patience(150ms, 4000, 2) == 600ms);
  CHECK(left_over_patience(150ms, 4, 0) == 600ms);
  CHECK(left_over_patience(150ms) >= 150ms);
}

TEST_CASE("thousands of left-overs are asked to end without the loop standing still",
          "[agent][left_overs]") {
  const auto children = make_children(kMany);
  Loop loop;
  const auto begin = thread_time();
  loop.measure([&] { loop.left_overs.terminate(); });
  loop.run();
  for (const pid_t pid : children) {
    int status = 0;
    REQUIRE(::waitpid(pid, &status, 0) == pid);
    REQUIRE(WIFSIGNALED(status));
    REQUIRE(WTERMSIG(status) == SIGTERM);
  }
  CHECK(loop.asked == kMany);
  CHECK(loop.named == LeftOvers::kNamed);
  CHECK(loop.longest < kLongestTurn);
  CHECK(thread_time() - begin < 1s);
}

TEST_CASE("and killed, however often that is asked for", "[agent][left_overs]") {
  auto children = make_children(kMany, 2);
  Loop loop;
  const auto deadline = std::chrono::steady_clock::now() + 60s;
  while (!loop.containment.is_empty() && std::chrono::steady_clock::now() < deadline) {
    for (int i = 0; i < 3; ++i) loop.measure([&] { loop.left_overs.kill(); });
    loop.run();
  }
  CHECK(loop.containment.is_empty());
  CHECK(loop.longest < kLongestTurn);
}

TEST_CASE("a left-over is asked once, a worker and its group never", "[agent][left_overs]") {
  const auto children = make_children(3, 1);  // all ignore SIGTERM
  Loop loop;
  loop.workers = {children[0]};
  ::setpgid(children[0], children[0]);
  ::setpgid(children[1], children[0]);
  ::setpgid(children[2], children[2]);
  loop.left_overs.terminate();
  loop.run();
  CHECK(loop.asked == 1);
  loop.left_overs.terminate();
  loop.run();
  CHECK(loop.asked == 1);
  loop.left_overs.reset();  // a new round
  loop.left_overs.terminate();
  loop.run();
  CHECK(loop.asked == 2);
  kill_and_reap(children);
}

TEST_CASE(
    "the upload that a rank waits for got SIGTERM when another rank failed, in a control group",
    "[agent][left_overs]") {
  Loop loop;
  if (loop.containment.cgroup_fd() < 0) {
    WARN("skipped: no control group may be made here");
    return;
  }
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);
  const auto worker = make_family(loop.containment);
  const auto ended = make_family(loop.containment);
  loop.workers = {worker.parent};
  loop.left_overs.terminate();
  loop.run();
  CHECK(loop.asked == 3);  // the other family
  loop.workers.clear();
  kill_and_reap({worker.parent});
  loop.left_overs.terminate();
  loop.run();
  CHECK(loop.asked == 5);
  for (const pid_t pid : {worker.shell, worker.last, ended.parent, ended.shell, ended.last})
    kill_and_reap({pid});  // a shell's child becomes ours when it has ended
  ::prctl(PR_SET_CHILD_SUBREAPER, 0);
}

TEST_CASE("what a dead agent left is swept in linear time, and again without harm",
          "[agent][left_overs]") {
  sigset_t deaths;
  sigset_t before;
  ::sigemptyset(&deaths);
  ::sigaddset(&deaths, SIGCHLD);
  ::sigprocmask(SIG_BLOCK, &deaths, &before);
  const UniqueFd signal_fd{::signalfd(-1, &deaths, SFD_CLOEXEC | SFD_NONBLOCK)};
  const auto children = make_children(kMany, 3);
  const auto others = make_children(2);
  const auto begin = thread_time();
  CHECK(sweep_orphans({others.begin(), others.end()}, signal_fd.get()) == kMany);
  CHECK(thread_time() - begin < 1s);
  CHECK(sweep_orphans({others.begin(), others.end()}, signal_fd.get()) == 0);
  for (const pid_t pid : others) CHECK(look_at_child(pid) == ChildState::alive);
  kill_and_reap(others);
  CHECK(sweep_orphans({}, signal_fd.get()) == 0);
  ::sigprocmask(SIG_SETMASK, &before, nullptr);
}
