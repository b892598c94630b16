#include "agent/rank_programs.hpp"

#include <boost/asio/io_context.hpp>
#include <catch2/catch.hpp>

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <vector>

using namespace acc::agent;

namespace {

/// A shell, the leader of a group, around another one that goes on after SIGUSR1.
constexpr const char* kHandles =
    "sh -c 'trap : USR1; echo $$; while :; do read line; done'; exit 3";
/// The same, but its signal is ignored, as by what a script starts with "&" or nohup.
constexpr const char* kIgnores =
    "sh -c 'trap \"\" USR1; echo $$; while :; do read line; done'; exit 3";

struct Wrapped {
  pid_t shell = 0;
  pid_t program = 0;
  int silent[2];  // the program reads it, and so has no child

  explicit Wrapped(const char* line = kHandles) {
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
      ::execl("/bin/sh", "sh", "-c", line, nullptr);
    }
    ::close(told[1]);
    std::FILE* const pids = ::fdopen(told[0], "r");
    REQUIRE(std::fscanf(pids, "%d", &program) == 1);
    std::fclose(pids);
  }
  ~Wrapped() {
    ::killpg(shell, SIGKILL);  // the shell isn't reaped before
    while (::waitpid(-shell, nullptr, 0) > 0) {  // the program is ours where orphans are
    }
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
  programs.signal(rank.shell, SIGUSR1, {}, {.asks_end = true});
  rank.await_end();
  bool has_ended = false;
  REQUIRE(programs.await_programs(rank.shell, 0, [&] { has_ended = true; }));
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
  std::vector<std::vector<pid_t>> told;
  RankPrograms programs{io, [&](const auto& workers) { told.push_back(workers); }};
  const Wrapped rank;
  const Wrapped later;
  for (const auto* one : {&rank, &later}) {
    programs.signal(one->shell, SIGUSR1, {}, {.asks_end = true});
    one->await_end();
  }
  REQUIRE(programs.await_programs(rank.shell, 0, [] {}));
  REQUIRE(io.run_one() == 1);
  REQUIRE(told.size() == 1);
  CHECK(told.front() == std::vector{rank.shell});
  REQUIRE(programs.await_programs(later.shell, 0, [] {}));
  for (const auto* one : {&rank, &later}) ::kill(one->program, SIGKILL);
  io.run();  // until nothing is waited for any more, no time either
  CHECK(told.size() == 1);
}

TEST_CASE("what a script had started with & took the whole grace of a Ctrl-C", "[agent]") {
  boost::asio::io_context io{1};
  RankPrograms programs{io, [](const auto&) {}};
  const Wrapped rank{kIgnores};
  programs.signal(rank.shell, SIGUSR1, {}, {.asks_end = true});
  rank.await_end();
  CHECK_FALSE(programs.await_programs(rank.shell, 0, [] {}));
  CHECK(programs.living(rank.shell).empty());
}

TEST_CASE("without a descriptor to spare a program that saved was taken for ended", "[agent]") {
  boost::asio::io_context io{1};
  RankPrograms programs{io, [](const auto&) {}};
  const Wrapped rank;
  programs.signal(rank.shell, SIGUSR1, {}, {.asks_end = true});
  rank.await_end();
  rlimit given{};
  REQUIRE(::getrlimit(RLIMIT_NOFILE, &given) == 0);
  const rlimit none{0, given.rlim_max};
  REQUIRE(::setrlimit(RLIMIT_NOFILE, &none) == 0);
  bool has_ended = false;
  const bool waits = programs.await_programs(rank.shell, 0, [&] { has_ended = true; });
  const auto living = programs.living(rank.shell);
  REQUIRE(::setrlimit(RLIMIT_NOFILE, &given) == 0);
  REQUIRE(waits);
  CHECK(living == std::vector{rank.program});
  io.poll();
  CHECK_FALSE(has_ended);
  ::kill(rank.program, SIGKILL);
  while (!has_ended) REQUIRE(io.run_one() == 1);
}

TEST_CASE("a signal that only was passed on makes nobody wait for what a worker leaves",
          "[agent]") {
  boost::asio::io_context io{1};
  RankPrograms programs{io, [](const auto&) {}};
  const Wrapped rank;
  programs.signal(rank.shell, SIGUSR1, {}, {.asks_end = false});
  rank.await_end();
  CHECK_FALSE(programs.await_programs(rank.shell, 0, [] {}));
  CHECK_FALSE(programs.are_awaited(rank.shell));
}
