#include "agent/parent_watch.hpp"

#include "agent/fanout/orders.hpp"
#include "agent/job_plan.hpp"
#include "common/unique_fd.hpp"

#include <catch2/catch.hpp>

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <string>
#include <vector>

using namespace acc;
using namespace acc::agent;

namespace {

struct SeenOfParents {
  boost::asio::io_context io{1};
  std::vector<std::string> seen;
  ParentWatch::Hooks hooks() {
    return {[this](const std::string& why) { seen.push_back("lost: " + why); },
            [this](int signo) { seen.push_back(std::to_string(signo)); },
            [this] { seen.emplace_back("asked"); }};
  }
  void run_until_seen(std::size_t count) {
    const auto until = clock_now() + std::chrono::seconds{10};
    while (seen.size() < count && clock_now() < until) {
      io.restart();
      io.run_one_for(std::chrono::seconds{1});
    }
  }
};

}  // namespace

TEST_CASE("the guardian's end is noticed without a signal", "[agent][parent]") {
  const pid_t guardian = ::fork();
  if (guardian == 0) {
    for (;;) ::pause();
  }
  SeenOfParents parents;
  ParentWatch watch{parents.io, {guardian}, parents.hooks()};
  watch.begin(std::nullopt);
  parents.io.poll();
  CHECK(parents.seen.empty());
  ::kill(guardian, SIGKILL);
  parents.run_until_seen(1);
  CHECK(parents.seen == std::vector<std::string>{"lost: "});
  ::waitpid(guardian, nullptr, 0);
}

TEST_CASE("another parent than the guardian means that it is gone", "[agent][parent]") {
  CHECK_FALSE(is_guardian_gone({}));
  CHECK_FALSE(is_guardian_gone({::getppid()}));
  CHECK(is_guardian_gone({::getpid()}));
}

TEST_CASE("a life line passes signals on, and its end is the end of what started the job",
          "[agent][parent]") {
  int ends[2];
  REQUIRE(::pipe2(ends, O_CLOEXEC) == 0);
  UniqueFd host{ends[1]};
  SeenOfParents parents;
  ParentWatch watch{parents.io, {}, parents.hooks()};
  watch.begin(LifeLine{.fd = ends[0], .token = "t"});
  const auto order = encode(PassSignal{SIGUSR1}) + encode(AskContact{});
  REQUIRE(::write(host.get(), order.data(), order.size()) == static_cast<ssize_t>(order.size()));
  parents.run_until_seen(2);
  host.reset();
  parents.run_until_seen(3);
  REQUIRE(parents.seen.size() == 3);
  CHECK(parents.seen[0] == std::to_string(SIGUSR1));
  CHECK(parents.seen[1] == "asked");
  CHECK(parents.seen[2] == "lost: its connection to the launching host was closed");
}
