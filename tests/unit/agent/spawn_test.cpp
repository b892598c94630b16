#include "agent/spawn.hpp"

#include <catch2/catch.hpp>

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <string>

using namespace acc;
using namespace acc::agent;

namespace {

/// What a child printed, and its wait status.
struct Ran {
  std::string out;
  int status = -1;
};

Ran run(Spawner& spawner, const std::string& script) {
  int ends[2];
  REQUIRE(::pipe2(ends, O_CLOEXEC) == 0);
  UniqueFd read_end{ends[0]};
  UniqueFd write_end{ends[1]};
  const CStringArray argv{{"sh", "-c", script}};
  SpawnRequest request;
  request.path = "/bin/sh";
  request.argv = argv.get();
  request.envp = environ;
  request.stdout_fd = write_end.get();
  auto result = spawner(request);
  REQUIRE(std::holds_alternative<Spawned>(result));
  write_end.reset();
  Ran ran;
  char chunk[4096];
  for (ssize_t n; (n = ::read(read_end.get(), chunk, sizeof chunk)) > 0;)
    ran.out.append(chunk, static_cast<std::size_t>(n));
  REQUIRE(::waitpid(std::get<Spawned>(result).pid, &ran.status, 0) > 0);
  return ran;
}

}  // namespace

TEST_CASE("a child has only its three descriptors, whatever we left open", "[agent][spawn]") {
  const UniqueFd leaky{::open("/dev/null", O_RDONLY)};  // no O_CLOEXEC, as an Asio socket
  Spawner spawner;
  // The listing itself needs one descriptor, which is the lowest free: 3.
  CHECK(run(spawner, "ls /proc/self/fd | tr '\\n' ' '").out == "0 1 2 3 ");
}

TEST_CASE("a child leads its own process group and dies with us", "[agent][spawn]") {
  Spawner spawner;
  CHECK(run(spawner, "set -- $(cat /proc/$$/stat); [ $5 = $$ ] && echo leads").out == "leads\n");
}

TEST_CASE("a child has no blocked and no ignored signals", "[agent][spawn]") {
  const auto before = ::signal(SIGPIPE, SIG_IGN);
  sigset_t blocked;
  ::sigemptyset(&blocked);
  ::sigaddset(&blocked, SIGTERM);
  sigset_t old;
  ::pthread_sigmask(SIG_BLOCK, &blocked, &old);
  Spawner spawner;
  const auto ran = run(spawner, "grep -E 'SigBlk|SigIgn' /proc/$$/status | tr -d '\\n'");
  ::pthread_sigmask(SIG_SETMASK, &old, nullptr);
  ::signal(SIGPIPE, before);
  CHECK(ran.out == "SigBlk:\t0000000000000000SigIgn:\t0000000000000000");
}

TEST_CASE("SIGHUP stays ignored under nohup", "[agent][spawn]") {
  const auto before = ::signal(SIGHUP, SIG_IGN);
  Spawner spawner;
  const auto ran = run(spawner, "grep SigIgn /proc/$$/status");
  ::signal(SIGHUP, before);
  CHECK(ran.out == "SigIgn:\t0000000000000001\n");
}

TEST_CASE("a start that fails says which step and why, and leaves no zombie", "[agent][spawn]") {
  Spawner spawner;
  const CStringArray argv{{"x"}};
  for (const auto& [path, errnum] :
       {std::pair{"/nonexistent/x", ENOENT}, std::pair{"/etc/passwd", EACCES}}) {
    SpawnRequest request;
    request.path = path;
    request.argv = argv.get();
    request.envp = environ;
    const auto result = spawner(request);
    REQUIRE(std::holds_alternative<SpawnFailure>(result));
    CHECK(std::get<SpawnFailure>(result).errnum == errnum);
    CHECK(std::string{std::get<SpawnFailure>(result).step} == "exec");
  }
  CHECK(::waitpid(-1, nullptr, WNOHANG) == -1);
  CHECK(errno == ECHILD);
}

TEST_CASE("our raised limit of descriptors is not the children's", "[agent][spawn]") {
  Spawner spawner;
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = 123;
  spawner.set_child_nofile(limit);
  CHECK(run(spawner, "ulimit -Sn").out == "123\n");
}

TEST_CASE("a child whose lease is over never runs the program", "[agent][spawn]") {
  const auto in = [](std::chrono::seconds time) {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(
               (std::chrono::steady_clock::now() + time).time_since_epoch())
        .count();
  };
  std::atomic<std::int64_t> ends{0};
  Spawner spawner;
  spawner.heed_lease(&ends);
  CHECK(run(spawner, "echo ran").out == "ran\n");  // 0: there is none
  ends = in(std::chrono::seconds{60});
  CHECK(run(spawner, "echo ran").out == "ran\n");
  ends = in(std::chrono::seconds{-1});
  const CStringArray argv{{"true"}};
  SpawnRequest request;
  request.path = "/bin/true";
  request.argv = argv.get();
  request.envp = environ;
  const auto result = spawner(request);
  REQUIRE(std::holds_alternative<SpawnFailure>(result));
  CHECK(std::get<SpawnFailure>(result).errnum == ETIME);
  CHECK(std::string{std::get<SpawnFailure>(result).step} == kLeaseStep);
  CHECK(::waitpid(-1, nullptr, WNOHANG) == -1);  // nothing is left of it
}
