#include "tests/support/thread_groups.hpp"
#include "tests/unit/runtime/checkpoint/tools.hpp"

#include <catch2/catch.hpp>

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <acc/checkpoint.hpp>
#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>

using namespace acc::testing;
using acc::runtime::Error;

namespace {

/// An agent that knows whether the round of this process is over, for as long as it lives.
class Agent {
 public:
  explicit Agent(std::string answer) : answer_{std::move(answer)} {
    const std::string name = "@acc-stale-test-" + std::to_string(::getpid());
    listening_ = acc::UniqueFd{::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)};
    sockaddr_un at{};
    at.sun_family = AF_UNIX;
    std::memcpy(at.sun_path + 1, name.data() + 1, name.size() - 1);
    const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + name.size());
    REQUIRE(::bind(listening_.get(), reinterpret_cast<sockaddr*>(&at), length) == 0);
    REQUIRE(::listen(listening_.get(), 8) == 0);
    ::setenv("ACC_AGENT_SOCKET", name.c_str(), 1);
    ::setenv("ACC_ROUND", "3", 1);
    thread_ = std::thread{[this] { serve(); }};
  }
  ~Agent() {
    ended_ = true;
    thread_.join();
    ::unsetenv("ACC_AGENT_SOCKET");
    ::unsetenv("ACC_ROUND");
  }
  std::atomic<int> asked{0};

 private:
  void serve() {
    while (!ended_) {
      pollfd wait{listening_.get(), POLLIN, 0};
      if (::poll(&wait, 1, 10) != 1) continue;
      const acc::UniqueFd line{::accept4(listening_.get(), nullptr, nullptr, SOCK_CLOEXEC)};
      char chunk[4096];
      std::string all;
      for (ssize_t n; (n = ::read(line.get(), chunk, sizeof chunk)) > 0;) {
        all.append(chunk, static_cast<std::size_t>(n));
        if (all.find("current 3 ") == std::string::npos || all.back() != '\n') continue;
        ++asked;
        [[maybe_unused]] const auto sent = ::write(line.get(), answer_.data(), answer_.size());
        all.clear();
      }
    }
  }
  std::string answer_;
  acc::UniqueFd listening_;
  std::atomic<bool> ended_{false};
  std::thread thread_;
};

/// Two ranks save checkpoint_2 beside checkpoint_1. @return what they failed with
std::string save_beside(const fs::path& folder) {
  std::string failure;
  on_ranks(2, [&](ProcessGroup& group) {
    auto options = quiet_options(folder);
    options.keep_last = 1;
    Checkpointer checkpoints{group, options};
    SmallRun run{group.rank(), 2, 2};
    REQUIRE(checkpoints.load(run.state()));  // or it would prune nothing: they are another run's
    try {
      checkpoints.save(2, run.state());
    } catch (const Error& error) {
      if (group.rank() == 1) failure = error.what();
    }
    group.barrier();
  });
  return failure;
}

}  // namespace

TEST_CASE("a rank whose round is over makes no checkpoint valid and prunes none",
          "[runtime][checkpoint]") {
  TemporaryFolder folder;
  on_ranks(2, [&](ProcessGroup& group) {
    Checkpointer checkpoints{group, quiet_options(folder.path())};
    SmallRun run{group.rank(), 2, 1};
    checkpoints.save(1, run.state());
  });
  REQUIRE(names_in(folder.path()) == std::vector<std::string>{"checkpoint_1"});
  SECTION("a later one has begun") {
    Agent agent{"wrong_round\n"};
    CHECK(save_beside(folder.path()).find("checkpoint_2 wasn't made valid: a later attempt") == 0);
    CHECK(agent.asked == 1);
    CHECK(names_in(folder.path()) == std::vector<std::string>{"checkpoint_1"});
  }
  SECTION("no coordinator answers") {
    Agent agent{"timed_out 0\n"};
    CHECK(save_beside(folder.path()).find("can't tell whether this process's round") == 0);
    CHECK(names_in(folder.path()) == std::vector<std::string>{"checkpoint_1"});
  }
  SECTION("it is the current one") {
    Agent agent{"number 9000\n"};
    CHECK(save_beside(folder.path()).empty());
    CHECK(agent.asked == 2);  // before the rename, and before the older one is removed
    CHECK(names_in(folder.path()) == std::vector<std::string>{"checkpoint_2"});
  }
}
