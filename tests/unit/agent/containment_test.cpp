#include "agent/containment.hpp"

#include "agent/spawn.hpp"

#include <catch2/catch.hpp>

#include <poll.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <string>
#include <thread>

using namespace acc;
using namespace acc::agent;

namespace {

// Starts a shell whose grandchild leaves group and session, and waits until that one is up.
pid_t start_escapee(Spawner& spawner, int cgroup_fd) {
  int ends[2];
  REQUIRE(::pipe(ends) == 0);
  const CStringArray argv{
      {"sh", "-c", "setsid sh -c 'trap \"\" TERM; echo up; sleep 1000' & exit 0"}};
  SpawnRequest request;
  request.path = "/bin/sh";
  request.argv = argv.get();
  request.envp = environ;
  request.stdout_fd = ends[1];
  request.cgroup_fd = cgroup_fd;
  auto result = spawner(request);
  REQUIRE(std::holds_alternative<Spawned>(result));
  ::close(ends[1]);
  pollfd wait{ends[0], POLLIN, 0};
  REQUIRE(::poll(&wait, 1, 10'000) == 1);
  ::close(ends[0]);
  return std::get<Spawned>(result).pid;
}

void kill_until_empty(Containment& containment) {
  for (int i = 0; i < 1000 && !containment.is_empty(); ++i) {
    containment.kill_cgroup();
    for (const auto& member : containment.members()) {
      if (member.is_child) ::kill(member.pid, SIGKILL);
    }
    while (::waitpid(-1, nullptr, WNOHANG) > 0) {
    }
    ::poll(nullptr, 0, 5);
  }
}

void check_escapee_is_found_and_ended(bool with_cgroup) {
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);
  Containment containment;
  if (!with_cgroup) containment.give_up_cgroup();
  if (with_cgroup && containment.cgroup_fd() < 0) {
    WARN("SKIPPED: no writable cgroup v2 here");
    return;
  }
  Spawner spawner;
  const pid_t leader = start_escapee(spawner, containment.cgroup_fd());
  REQUIRE(::waitpid(leader, nullptr, 0) == leader);
  CHECK_FALSE(containment.is_empty());
  const auto left = containment.left_over(32);
  REQUIRE_FALSE(left.empty());
  CHECK(left.front().pid != leader);
  kill_until_empty(containment);
  CHECK(containment.is_empty());
  CHECK(containment.left_over(32).empty());
}

}  // namespace

TEST_CASE("a process that left its group and session is found and ended through the sub-reaper",
          "[agent][containment]") {
  check_escapee_is_found_and_ended(false);
}

TEST_CASE("and through the cgroup, which is removed afterwards", "[agent][containment]") {
  check_escapee_is_found_and_ended(true);
  std::string path;
  {
    const Containment containment;
    path = containment.cgroup_path();
  }
  if (!path.empty()) CHECK_FALSE(std::filesystem::exists(path));
}

TEST_CASE("a round after a kill is not killed at its start by the kernel", "[agent][containment]") {
  Containment containment;
  if (containment.cgroup_fd() < 0) {
    WARN("SKIPPED: no writable cgroup v2 here");
    return;
  }
  Spawner spawner;
  const CStringArray argv{{"sh", "-c", "exit 7"}};
  for (int round = 0; round < 3; ++round) {
    containment.prepare_round();
    SpawnRequest request;
    request.path = "/bin/sh";
    request.argv = argv.get();
    request.envp = environ;
    request.cgroup_fd = containment.cgroup_fd();
    auto result = spawner(request);
    REQUIRE(std::holds_alternative<Spawned>(result));
    int status = 0;
    REQUIRE(::waitpid(std::get<Spawned>(result).pid, &status, 0) > 0);
    CHECK(WIFEXITED(status));
    containment.kill_cgroup();
  }
}

TEST_CASE("what was born in a reserve is of no round until one uses it", "[agent][containment]") {
  std::string reserve;
  {
    Containment containment;
    if (containment.cgroup_fd() < 0) {
      WARN("SKIPPED: no writable cgroup v2 here");
      return;
    }
    CHECK_FALSE(containment.use_reserve());
    const std::string round = containment.cgroup_path();
    const pid_t child = ::fork();
    if (child == 0) {
      ::pause();
      ::_exit(0);
    }
    containment.set_helper(child);
    containment.reserve(child);
    CHECK(containment.members().empty());
    containment.kill_cgroup();
    CHECK(look_at_child(child) == ChildState::alive);
    REQUIRE(containment.use_reserve());
    reserve = containment.cgroup_path();
    CHECK(reserve != round);
    CHECK_FALSE(std::filesystem::exists(round));
    CHECK(containment.members().size() == 1);
    containment.kill_cgroup();
    int status = 0;
    REQUIRE(::waitpid(child, &status, 0) == child);
    CHECK(WTERMSIG(status) == SIGKILL);
  }
  CHECK_FALSE(std::filesystem::exists(reserve));
}

TEST_CASE("a reserve that no round used ends with the agent's containment", "[agent][containment]") {
  std::filesystem::path base;
  const pid_t child = ::fork();
  if (child == 0) {
    ::pause();
    ::_exit(0);
  }
  {
    Containment containment;
    base = std::filesystem::path{containment.cgroup_path()}.parent_path();
    containment.reserve(child);
  }
  if (base.empty()) ::kill(child, SIGKILL);
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(WTERMSIG(status) == SIGKILL);
  const std::string own = "acc-launch-job-" + std::to_string(::getpid()) + '-';
  if (base.empty()) return;
  for (const auto& entry : std::filesystem::directory_iterator{base})
    CHECK_FALSE(entry.path().filename().string().starts_with(own));
}

TEST_CASE("the cgroup of an agent that died is swept by the next one", "[agent][containment]") {
  std::string base;
  {
    const Containment containment;
    if (containment.cgroup_path().empty()) {
      WARN("SKIPPED: no writable cgroup v2 here");
      return;
    }
    base = std::filesystem::path{containment.cgroup_path()}.parent_path();
  }
  const std::string stale = base + "/acc-launch-job-999999999-stale";
  const std::string foreign = base + "/acc-somebody-else";
  std::filesystem::create_directory(stale);
  std::filesystem::create_directory(foreign);
  const Containment living;
  sweep_dead_cgroups();
  CHECK_FALSE(std::filesystem::exists(stale));
  CHECK(std::filesystem::exists(foreign));
  CHECK(std::filesystem::exists(living.cgroup_path()));
  std::filesystem::remove(foreign);
}

TEST_CASE("launches that began at the same moment killed each other's workers",
          "[agent][containment]") {
  if (Containment{}.cgroup_fd() < 0) {
    WARN("no cgroup here: skipped");
    return;
  }
  std::atomic<bool> stop{false};
  std::atomic<int> sweeps{0};
  const auto sweep = [&] {
    while (!stop) {
      sweep_dead_cgroups();
      ++sweeps;
    }
  };
  std::jthread first{sweep}, second{sweep};
  int killed = 0, without = 0;
  for (int launch = 0; launch < 200; ++launch) {
    const Containment containment;
    if (containment.cgroup_fd() < 0) ++without;
    const pid_t worker = ::fork();
    if (worker == 0) {
      ::pause();
      ::_exit(0);
    }
    containment.adopt(worker);
    // The sweeps that may have begun before, and a whole one.
    for (const int before = sweeps; sweeps < before + 3;) std::this_thread::yield();
    if (look_at_child(worker) != ChildState::alive) ++killed;
    ::kill(worker, SIGKILL);
    ::waitpid(worker, nullptr, 0);
  }
  stop = true;
  CHECK(killed == 0);
  CHECK(without == 0);
}

TEST_CASE("another user's lock kept a job from its cgroup, or a dead one from being swept",
          "[agent][containment]") {
  const auto before = ::umask(0022);
  const Containment containment;
  ::umask(before);
  if (containment.cgroup_path().empty()) {
    WARN("SKIPPED: no writable cgroup v2 here");
    return;
  }
  struct stat facts {};
  REQUIRE(::stat(containment.cgroup_path().c_str(), &facts) == 0);
  CHECK((facts.st_mode & 0777) == 0711);  // what others can't open for reading they can't lock
}

TEST_CASE("a process is looked up by name and state, whatever its name", "[agent][containment]") {
  CHECK(look_up(::getpid()).state == 'R');
  CHECK(look_up(::getpid()).name == "test-agent");
  CHECK(look_up(999'999'999).state == 'X');
}

TEST_CASE("a child is alive, then dead, then nobody's", "[agent][containment]") {
  const pid_t child = ::fork();
  if (child == 0) {
    for (;;) ::pause();
  }
  CHECK(look_at_child(child) == ChildState::alive);
  ::kill(child, SIGKILL);
  siginfo_t info{};
  REQUIRE(::waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOWAIT) == 0);
  CHECK(look_at_child(child) == ChildState::dead);
  REQUIRE(::waitpid(child, nullptr, 0) == child);
  CHECK(look_at_child(child) == ChildState::none);
  CHECK(look_at_child(::getppid()) == ChildState::none);
}
