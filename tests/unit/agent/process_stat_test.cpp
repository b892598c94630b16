#include "agent/process_stat.hpp"

#include <catch2/catch.hpp>

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>

using acc::agent::children_of_main_thread;
using acc::agent::parse_process_stat;
using acc::agent::read_process_stat;

SCENARIO("the state of a process is read from the kernel's line", "[agent]") {
  const auto seen = parse_process_stat(
      "71 (a (b) c) S 70 71 71 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 123456 9 10\n");
  CHECK(seen.name == "a (b) c");
  CHECK(seen.state == 'S');
  CHECK(seen.parent == 70);
  CHECK(seen.start_time == 123456);

  const auto own = read_process_stat(::getpid());
  CHECK(own.state == 'R');
  CHECK(own.parent == ::getppid());
  CHECK(own.start_time > 0);
}

SCENARIO("what can't be read is a process that is gone", "[agent]") {
  CHECK(read_process_stat(-1).state == 'X');
  for (const char* text : {"", "71", "71 (a", "71 (a)", "71 (a) "})
    CHECK(parse_process_stat(text).state == 'X');
  const auto cut = parse_process_stat("71 (a) Z 70");
  CHECK(cut.state == 'Z');
  CHECK(cut.parent == 70);
  CHECK(cut.start_time == 0);
}

SCENARIO("a process finds those that its main thread started", "[agent]") {
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    ::pause();
    ::_exit(0);
  }
  const auto children = children_of_main_thread(::getpid());
  CHECK(std::ranges::count(children, child) == 1);
  CHECK(children_of_main_thread(child).empty());
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  CHECK(children_of_main_thread(child).empty());
}

TEST_CASE("a signal that a process hasn't taken yet is pending", "[agent]") {
  sigset_t set;
  sigset_t before;
  ::sigemptyset(&set);
  ::sigaddset(&set, SIGUSR2);
  ::sigprocmask(SIG_BLOCK, &set, &before);
  CHECK(!acc::agent::has_pending_signal(::getpid(), SIGUSR2));
  ::kill(::getpid(), SIGUSR2);
  CHECK(acc::agent::has_pending_signal(::getpid(), SIGUSR2));
  CHECK(!acc::agent::has_pending_signal(::getpid(), SIGUSR1));
  int taken = 0;
  ::sigwait(&set, &taken);
  CHECK(!acc::agent::has_pending_signal(::getpid(), SIGUSR2));
  ::sigprocmask(SIG_SETMASK, &before, nullptr);
}
