#include "agent/rank_programs.hpp"

#include <boost/asio/io_context.hpp>
#include <catch2/catch.hpp>

#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <vector>

using namespace acc::agent;

namespace {

/// A shell, the leader of a group, around another one that goes on after SIGUSR1.
struct Wrapped {
  pid_t shell = 0;
  pid_t program = 0;
  int silent[2];  // the program reads it, and so has no child

  Wrapped() {
    int told[2];
    REQUIRE((::pipe(told) == 0 && ::pipe(silent) == 0));
    shell = ::fork();
    if (shell == 0) {
      ::setpgid(0, 0);
      ::dup2(told[1], 1);
      ::dup2(silent[0], 0);
      ::signal(SIGUSR1, SIG_DFL);  // whatever another test has left
      sigset_t none;
      ::sigemptyset(&none);
      ::sigprocmask(SIG_SETMASK, &none, nullptr);
      ::execl("/bin/sh", "sh", "-c",
              "sh -c 'trap : USR1; echo $$; while :; do read line; done'; exit 3", nullptr);
    }
    ::close(told[1]);
    std::FILE* const pids = ::fdopen(told[0], "r");
    REQUIRE(std::fscanf(pids, "%d", &program) == 1);
    std::fclose(pids);
  }
  ~Wrapped() {
    ::killpg(shell, SIGKILL);  // the shell isn't reaped before
    ::waitpid(shell, nullptr, 0);
    for (const int end : silent) ::close(end);
  }
  Wrapped(const Wrapped&) = delete;
  Wrapped& operator=(const Wrapped&) = delete;
  /// It has ended and isn't reaped.
  void await_end() const {
    siginfo_t info{};
    REQUIRE(::waitid(P_PID, static_cast<id_t>(shell), &info, WEXITED | WNOWAIT) == 0);
    CHECK(info.si_status == SIGUSR1);
  }
};

}  // namespace

TEST_CASE("the program in a shell that died of a pre-emption signal was a left-over while it saved",
          "[agent]") {
  boost::asio::io_context io{1};
  RankPrograms programs{io, [](const auto&) {}};
  const Wrapped rank;
  programs.signal(rank.shell, SIGUSR1, {}, true);
  rank.await_end();
  bool has_ended = false;
  REQUIRE(programs.await_programs(rank.shell, [&] { has_ended = true; }));
  CHECK(programs.are_awaited(rank.shell));
  CHECK(programs.living(rank.shell) == std::vector{rank.program});
  io.poll();
  CHECK_FALSE(has_ended);
  ::kill(rank.program, SIGKILL);
  while (!has_ended) REQUIRE(io.run_one() == 1);
  CHECK_FALSE(programs.are_awaited(rank.shell));
  CHECK(programs.living(rank.shell).empty());
}

TEST_CASE("ranks that are waited for so are told once, after a second", "[agent]") {
  boost::asio::io_context io{1};
  std::vector<pid_t> told;
  RankPrograms programs{io, [&](const auto& workers) { told = workers; }};
  const Wrapped rank;
  programs.signal(rank.shell, SIGUSR1, {}, true);
  rank.await_end();
  REQUIRE(programs.await_programs(rank.shell, [] {}));
  REQUIRE(io.run_one() == 1);
  CHECK(told == std::vector{rank.shell});
}

TEST_CASE("a signal that only was passed on makes nobody wait for what a worker leaves",
          "[agent]") {
  boost::asio::io_context io{1};
  RankPrograms programs{io, [](const auto&) {}};
  const Wrapped rank;
  programs.signal(rank.shell, SIGUSR1, {}, false);
  rank.await_end();
  CHECK_FALSE(programs.await_programs(rank.shell, [] {}));
  CHECK_FALSE(programs.are_awaited(rank.shell));
}
