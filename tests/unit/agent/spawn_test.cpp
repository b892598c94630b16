#include "agent/spawn.hpp"

#include "agent/lease_terms.hpp"
#include "agent/worker_start.hpp"

#include <catch2/catch.hpp>

#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <string>
#include <vector>

using namespace acc;
using namespace acc::agent;

namespace {

/// What a child printed, and its wait status.
struct Ran {
  std::string out;
  int status = -1;
};

Ran run(Spawner& spawner, const std::string& script, const int* ignored_signals = nullptr) {
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
  request.ignored_signals = ignored_signals;
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

TEST_CASE("a child ignores the signals of its request", "[agent][spawn]") {
  const auto before = ::signal(SIGTERM, SIG_IGN);  // ours is set back first
  constexpr int kSignals[] = {SIGUSR1, SIGTERM, 0};
  Spawner spawner;
  const auto ran = run(spawner, "grep SigIgn /proc/$$/status", kSignals);
  ::signal(SIGTERM, before);
  CHECK(ran.out == "SigIgn:\t0000000000004200\n");
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

namespace {

/// Shells that write a letter each, held before exec.
struct Held {
  explicit Held(std::size_t count) : children{spawner, count} {
    int ends[2];
    REQUIRE(::pipe2(ends, O_CLOEXEC) == 0);
    output = UniqueFd{ends[0]};
    const UniqueFd write_end{ends[1]};
    for (std::size_t i = 0; i < count; ++i) {
      SpawnRequest request;
      request.path = "/bin/sh";
      request.argv = argv.get();
      request.envp = environ;
      request.stdout_fd = write_end.get();
      auto result = children.add(request);
      REQUIRE(std::holds_alternative<Spawned>(result));
      pids.push_back(std::get<Spawned>(result).pid);
    }
    REQUIRE_FALSE(children.settle());
  }
  /// Until the last one has closed its end, which takes the end of all.
  std::string all_output() const {
    std::string text;
    char chunk[4096];
    for (ssize_t n; (n = ::read(output.get(), chunk, sizeof chunk)) > 0;)
      text.append(chunk, static_cast<std::size_t>(n));
    return text;
  }
  void reap() const {
    for (const pid_t pid : pids) CHECK(::waitpid(pid, nullptr, 0) == pid);
  }

  Spawner spawner;
  CStringArray argv{{"sh", "-c", "echo x"}};
  HeldChildren children;
  UniqueFd output;
  std::vector<pid_t> pids;
};

}  // namespace

TEST_CASE("no child runs its program before all are let go", "[agent][spawn]") {
  Held held{20};
  pollfd output{held.output.get(), POLLIN, 0};
  CHECK(::poll(&output, 1, 50) == 0);  // nothing comes; a wait that can't end early
  SECTION("then all do") {
    CHECK_FALSE(held.children.try_first(std::chrono::seconds{10}));
    CHECK(held.children.release_some());
    pollfd left{held.children.left_fd(), POLLIN, 0};
    CHECK(held.all_output().size() == 40);
    CHECK(::poll(&left, 1, 10'000) == 1);
    CHECK(held.children.all_left());
  }
  SECTION("or none ever does") {
    for (const pid_t pid : held.pids) ::kill(pid, SIGKILL);
    held.children.left_fd();  // no copy of the pipe is kept for the next one
    CHECK(held.all_output().empty());
  }
  held.reap();
}

TEST_CASE("a child that shares our table while it is made has only what it was given",
          "[agent][spawn]") {
  std::vector<UniqueFd> many;
  for (int i = 0; i < 300; ++i) many.emplace_back(::open("/dev/null", O_RDONLY));
  Spawner spawner;
  CHECK(run(spawner, "ls /proc/self/fd | tr '\\n' ' '").out == "0 1 2 3 ");
  for (const auto& fd : many) REQUIRE(::fcntl(fd.get(), F_GETFD) >= 0);  // ours are untouched
}

TEST_CASE("a child gets its connection for PMI as number 3", "[agent][spawn]") {
  int ends[2];
  REQUIRE(::pipe2(ends, O_CLOEXEC) == 0);
  const UniqueFd read_end{ends[0]};
  UniqueFd write_end{ends[1]};
  const CStringArray argv{{"sh", "-c", "echo word >&3"}};
  SpawnRequest request;
  request.path = "/bin/sh";
  request.argv = argv.get();
  request.envp = environ;
  request.pmi_fd = write_end.get();
  Spawner spawner;
  auto result = spawner(request);
  REQUIRE(std::holds_alternative<Spawned>(result));
  write_end.reset();
  char text[16] = {};
  CHECK(::read(read_end.get(), text, sizeof text) == 5);
  CHECK(std::string{text} == "word\n");
  ::waitpid(std::get<Spawned>(result).pid, nullptr, 0);
}

TEST_CASE("a child is bound to the cores it was given", "[agent][spawn]") {
  cpu_set_t ours;
  REQUIRE(::sched_getaffinity(0, sizeof ours, &ours) == 0);
  std::uint32_t last = 0;
  for (std::uint32_t core = 0; core < CPU_SETSIZE; ++core) {
    if (CPU_ISSET(core, &ours)) last = core;
  }
  const auto mask = affinity_mask({last});
  const CStringArray argv{
      {"sh", "-c", "grep -q \"^Cpus_allowed_list:.$0$\" /proc/self/status", std::to_string(last)}};
  SpawnRequest request;
  request.path = "/bin/sh";
  request.argv = argv.get();
  request.envp = environ;
  request.cpus = &mask;
  Spawner spawner;
  auto result = spawner(request);
  REQUIRE(std::holds_alternative<Spawned>(result));
  int status = -1;
  ::waitpid(std::get<Spawned>(result).pid, &status, 0);
  CHECK(status == 0);
}
