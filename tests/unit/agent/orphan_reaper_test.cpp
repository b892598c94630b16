#include "agent/orphan_reaper.hpp"

#include <boost/asio/io_context.hpp>
#include <catch2/catch.hpp>

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <vector>

using acc::agent::OrphanReaper;

namespace {

pid_t fork_child() {
  const pid_t pid = ::fork();
  if (pid == 0) {
    for (;;) ::pause();
  }
  return pid;
}

void end(pid_t pid) {
  siginfo_t info{};
  ::kill(pid, SIGKILL);
  REQUIRE(::waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOWAIT) == 0);
}

bool is_child(pid_t pid) {
  siginfo_t info{};
  return ::waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOHANG | WNOWAIT) == 0;
}

}  // namespace

TEST_CASE("many orphans beside a rank whose programs were waited for held up the loop", "[agent]") {
  constexpr std::size_t kOrphans = 50;
  boost::asio::io_context io{1};
  const pid_t awaited = fork_child();
  std::size_t looked_at = 0;
  OrphanReaper reaper{
      io,
      [&](pid_t pid) {
        ++looked_at;
        return pid == awaited;
      },
      {.slice = std::chrono::milliseconds{0}, .pause = std::chrono::milliseconds{1}}};
  std::vector<pid_t> orphans;
  for (std::size_t i = 0; i < kOrphans; ++i) orphans.push_back(fork_child());
  const pid_t first = orphans.front();
  end(awaited);
  for (const pid_t pid : orphans)
    if (pid != first) end(pid);
  reaper.reap_beside_dead();
  CHECK(looked_at == 1);  // a slice of no time
  const auto left = [&] { return std::ranges::count_if(orphans, is_child); };
  while (left() > 1) {
    const auto before = looked_at;
    REQUIRE(io.run_one() == 1);
    CHECK(looked_at <= before + 1);
  }
  end(first);  // when it has been passed
  for (int i = 0; i < 100; ++i) reaper.reap_beside_dead();
  while (left() > 0) REQUIRE(io.run_one() == 1);
  io.run();  // no walk follows that nothing asked for
  CHECK(looked_at <= 3 * (kOrphans + 1));
  CHECK(is_child(awaited));
  ::waitpid(awaited, nullptr, 0);
}
