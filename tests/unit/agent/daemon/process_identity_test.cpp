#include "agent/daemon/process_identity.hpp"

#include "agent/daemon/descriptor_waits.hpp"

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <catch2/catch.hpp>

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <exception>
#include <string>
#include <vector>

using namespace acc;
using namespace acc::agent::daemon;
using namespace std::chrono_literals;

namespace {

/// Processes with a mark in their environment, until this ends.
struct Sleepers {
  std::string mark = "ACC_TEST_MARK=" + std::to_string(::getpid());
  std::vector<pid_t> pids;

  explicit Sleepers(int count) {
    for (int i = 0; i < count; ++i) {
      int started[2];
      REQUIRE(::pipe2(started, O_CLOEXEC) == 0);
      const pid_t pid = ::fork();
      REQUIRE(pid >= 0);
      if (pid == 0) {
        char* const words[] = {const_cast<char*>("sleep"), const_cast<char*>("600"), nullptr};
        char* const environment[] = {mark.data(), nullptr};
        ::execve("/bin/sleep", words, environment);
        ::_exit(1);
      }
      ::close(started[1]);
      char byte = 0;
      [[maybe_unused]] const auto n = ::read(started[0], &byte, 1);  // closed by its exec
      ::close(started[0]);
      pids.push_back(pid);
    }
  }
  ~Sleepers() {
    for (const pid_t pid : pids) ::kill(pid, SIGKILL);
    for (const pid_t pid : pids) ::waitpid(pid, nullptr, 0);
  }
  Sleepers(const Sleepers&) = delete;
  Sleepers& operator=(const Sleepers&) = delete;
};

bool is_readable(UniqueFd fd, std::chrono::milliseconds limit) {
  boost::asio::io_context io;
  bool answer = false;
  std::exception_ptr failed;
  boost::asio::co_spawn(io, await_readable(std::move(fd), limit),
                        [&](const std::exception_ptr& error, bool is) {
                          failed = error;
                          answer = is;
                        });
  io.run();
  CHECK_FALSE(failed);
  return answer;
}

}  // namespace

TEST_CASE("any number of processes with a mark takes few descriptors", "[daemon][processes]") {
  const Sleepers sleepers{12};
  CHECK(processes_with(::geteuid(), sleepers.mark, 5).size() == 5);
  CHECK(processes_with(::geteuid(), sleepers.mark, 32).size() == 12);
  CHECK(processes_with(::geteuid(), sleepers.mark + "0", 32).empty());
  CHECK(kill_processes_with(::geteuid(), sleepers.mark, sleepers.pids[0]) == 11);
  for (std::size_t i = 1; i < sleepers.pids.size(); ++i) {
    siginfo_t info{};
    REQUIRE(::waitid(P_PID, static_cast<id_t>(sleepers.pids[i]), &info, WEXITED | WNOWAIT) == 0);
    CHECK(info.si_status == SIGKILL);
  }
  const auto left = processes_with(::geteuid(), sleepers.mark, 32);
  REQUIRE(left.size() == 1);
  CHECK(left[0].pid == sleepers.pids[0]);
}

TEST_CASE("a wait without a descriptor fails after a pause, and throws nothing",
          "[daemon][processes]") {
  CHECK_FALSE(is_readable(UniqueFd{}, 10s));
  // The loop takes no file: it is looked at instead, and a file always is readable.
  CHECK(is_readable(UniqueFd{::open("/proc/self/stat", O_RDONLY | O_CLOEXEC)}, 10s));
}
