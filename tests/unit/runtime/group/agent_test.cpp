#include "common/heartbeat_page.hpp"
#include "common/unique_fd.hpp"
#include "tests/unit/runtime/group/scripted_backend.hpp"

#include <catch2/catch.hpp>

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <acc/agent.hpp>
#include <acc/error.hpp>
#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

// What a worker says is read by a socket of ours in the agent's place. The line belongs to the
// process, so each case is played by a child.

using namespace std::chrono_literals;

namespace {

class FakeAgent {
 public:
  FakeAgent()
      : name_{"@acc-agent-test-" + std::to_string(::getpid()) + "-" + std::to_string(++count)} {
    listening_ = acc::UniqueFd{::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)};
    sockaddr_un at{};
    at.sun_family = AF_UNIX;
    std::memcpy(at.sun_path + 1, name_.data() + 1, name_.size() - 1);
    const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + name_.size());
    REQUIRE(::bind(listening_.get(), reinterpret_cast<sockaddr*>(&at), length) == 0);
    REQUIRE(::listen(listening_.get(), 4) == 0);
  }
  const std::string& name() const { return name_; }

  /// Answers each client's questions with these, one after the other; the last one again and again.
  /// @return what the clients asked
  std::string answer(const std::vector<std::string>& answers) {
    if (!ready(listening_.get())) return "no connection";
    const acc::UniqueFd line{::accept4(listening_.get(), nullptr, nullptr, SOCK_CLOEXEC)};
    std::string all;
    std::size_t next = 0;
    std::size_t told = 0;
    while (ready(line.get())) {
      char chunk[4096];
      const auto n = ::read(line.get(), chunk, sizeof chunk);
      if (n <= 0) return all;
      all.append(chunk, static_cast<std::size_t>(n));
      for (auto at = all.find("current", told); at != std::string::npos && all.back() == '\n';
           at = all.find("current", told)) {
        told = at + 1;
        const auto& text = answers[std::min(next++, answers.size() - 1)];
        [[maybe_unused]] const auto sent = ::write(line.get(), text.data(), text.size());
      }
    }
    return all + "(nothing more for 10 s)";
  }

  // All that the one client says until it hangs up, or until `enough` is in it.
  std::string hear(const std::string& enough = {}) {
    if (!ready(listening_.get())) return "no connection";
    const acc::UniqueFd line{::accept4(listening_.get(), nullptr, nullptr, SOCK_CLOEXEC)};
    std::string all;
    while (ready(line.get())) {
      char chunk[4096];
      const auto n = ::read(line.get(), chunk, sizeof chunk);
      if (n <= 0) return all;
      all.append(chunk, static_cast<std::size_t>(n));
      if (!enough.empty() && all.find(enough) != std::string::npos) return all;
    }
    return all + "(nothing more for 10 s)";
  }

 private:
  static bool ready(int fd) {
    pollfd wait{fd, POLLIN, 0};
    return ::poll(&wait, 1, 10'000) == 1;
  }
  static inline int count = 0;
  std::string name_;
  acc::UniqueFd listening_;
};

template <class Body>
pid_t in_child(const std::string& socket, Body body) {
  const pid_t pid = ::fork();
  if (pid != 0) return pid;
  if (socket.empty())
    ::unsetenv("ACC_AGENT_SOCKET");
  else
    ::setenv("ACC_AGENT_SOCKET", socket.c_str(), 1);
  ::setenv("RANK", "3", 1);
  ::setenv("ACC_ROUND", "2", 1);
  ::_exit(body() ? 0 : 1);
}

bool went_well(pid_t pid) {
  int status = -1;
  ::waitpid(pid, &status, 0);
  return status == 0;
}

}  // namespace

TEST_CASE("a worker tells its agent how far it is", "[agent]") {
  FakeAgent agent;
  const auto pid = in_child(agent.name(), [] {
    if (!acc::agent::present()) return false;
    acc::agent::heartbeat(7);
    acc::agent::checkpoint(7);
    acc::agent::no_restart("the loss is NaN");
    return true;
  });
  CHECK(agent.hear() == "hello 3 2\nbeat 7\ncheckpoint 7\nno_restart the loss is NaN\n");
  CHECK(went_well(pid));
}

TEST_CASE("a thread of heartbeats repeats the step", "[agent]") {
  FakeAgent agent;
  const auto pid = in_child(agent.name(), [] {
    acc::agent::Heartbeat beats{5ms};
    beats.at(41);
    ::pause();  // until the test has heard enough
    return true;
  });
  CHECK_THAT(agent.hear("beat 41\nbeat 41\nbeat 41\n"), Catch::StartsWith("hello 3 2\nbeat "));
  ::kill(pid, SIGKILL);
  ::waitpid(pid, nullptr, 0);
}

TEST_CASE(
    "with acc-ctl's ACC_AGENT_SOCKET exported, each save of a program without acc-launch failed",
    "[agent]") {
  const auto pid = in_child("/run/acc/agent.sock", [] {
    ::unsetenv("ACC_ROUND");
    acc::agent::heartbeat(7);
    return acc::agent::is_current() && !acc::agent::present();
  });
  CHECK(went_well(pid));
}

TEST_CASE("a heartbeat without an interval is refused", "[agent]") {
  for (const auto every : {0ms, -1ms}) {
    try {
      const acc::agent::Heartbeat beats{every};
      FAIL("an interval of " << every.count() << " ms was accepted");
    } catch (const acc::runtime::Error& error) {
      CHECK(error.code() == acc::runtime::ErrorCode::invalid_argument);
      CHECK_THAT(error.what(), Catch::StartsWith("the interval of Heartbeat is "));
    }
  }
}

TEST_CASE("without an agent, or with one that is gone, telling does nothing", "[agent]") {
  const auto tell_all = [] {
    acc::agent::heartbeat(1);
    acc::agent::checkpoint(1);
    acc::agent::no_restart("why");
    const acc::agent::Heartbeat beats;
    return !acc::agent::present();
  };
  CHECK(went_well(in_child("", tell_all)));
  std::string gone;
  gone = FakeAgent{}.name();
  CHECK(went_well(in_child(gone, tell_all)));
}

TEST_CASE("a worker may write as long as its round is the current one", "[agent]") {
  FakeAgent agent;
  SECTION("yes") {
    const auto pid = in_child(agent.name(), [] { return acc::agent::is_current(30s); });
    CHECK(agent.answer({"number 9000\n"}) == "hello 3\ncurrent 2 30000\n");
    CHECK(went_well(pid));
  }
  SECTION("no: a later round has begun") {
    const auto pid = in_child(agent.name(), [] { return !acc::agent::is_current(); });
    CHECK(agent.answer({"wrong_round\n"}) == "hello 3\ncurrent 2 60000\n");
    CHECK(went_well(pid));
  }
  SECTION("an answer that was slept on is asked for again") {
    const auto pid = in_child(agent.name(), [] { return acc::agent::is_current(30s); });
    const auto asked = agent.answer({"number 0\n", "number 9000\n"});
    CHECK(asked.find("current 2 30000\ncurrent 2 ") != std::string::npos);
    CHECK(went_well(pid));
  }
  SECTION("no answer is no yes") {
    const auto pid = in_child(agent.name(), [] {
      try {
        return acc::agent::is_current(20ms) && false;
      } catch (const acc::runtime::Error& error) {
        const std::string what = error.what();
        return error.code() == acc::runtime::ErrorCode::timed_out &&
               what.find("no coordinator of the job could confirm within 20 ms that round 2") !=
                   std::string::npos;
      }
    });
    static_cast<void>(agent.answer({"timed_out 0\n"}));
    CHECK(went_well(pid));
  }
}

TEST_CASE("without acc-launch a process may always write, with an agent that is gone never",
          "[agent]") {
  CHECK(went_well(in_child("", [] { return acc::agent::is_current(); })));
  std::string gone;
  gone = FakeAgent{}.name();
  CHECK(went_well(in_child(gone, [] {
    try {
      return acc::agent::is_current() && false;
    } catch (const acc::runtime::Error& error) {
      return error.code() == acc::runtime::ErrorCode::system;
    }
  })));
}

TEST_CASE("with a page of heartbeats only the first one is a message", "[agent]") {
  FakeAgent agent;
  auto page = acc::heartbeat::Mapping::make(2, 2);
  REQUIRE(page.has_value());
  const std::string variable = "/proc/" + std::to_string(::getpid()) + "/fd/" +
                               std::to_string(page->fd()) + ":" +
                               std::to_string(acc::heartbeat::slot_offset(1));
  const auto pid = in_child(agent.name(), [&] {
    ::setenv("ACC_HEARTBEAT_PAGE", variable.c_str(), 1);
    for (std::uint64_t step = 0; step < 100; ++step) acc::agent::heartbeat(step);
    const acc::agent::Section outer{"evaluation", 90s};
    { const acc::agent::Section inner{"a short one"}; }
    acc::agent::begin_section("checkpoint", 0ms);
    acc::agent::checkpoint(99);
    ::_exit(0);
    return true;
  });
  CHECK(agent.hear() == "hello 3 2\nbeat 0\ncheckpoint 99\n");
  CHECK(went_well(pid));
  const auto beat = read(page->slot(1));
  CHECK(beat.beats == 100);
  CHECK(beat.step == 99);
  CHECK(beat.checkpoints == 1);
  CHECK(beat.section == "checkpoint");
  CHECK(beat.section_limit_ms == 0);
}

TEST_CASE("sections without a page are messages", "[agent]") {
  FakeAgent agent;
  const auto pid = in_child(agent.name(), [] {
    const acc::agent::Section outer{"evaluation", 90s};
    { const acc::agent::Section inner{"checkpoint"}; }
    return true;
  });
  CHECK(agent.hear() ==
        "hello 3 2\nsection 90000 evaluation\nsection 0 checkpoint\nsection 90000 "
        "evaluation\nsection_end\n");
  CHECK(went_well(pid));
}

TEST_CASE("the agent learns that a call failed because of another rank", "[agent]") {
  using acc::runtime::Error;
  using acc::runtime::ErrorCode;
  auto page = acc::heartbeat::Mapping::make(2, 2);
  REQUIRE(page.has_value());
  const std::string variable = "/proc/" + std::to_string(::getpid()) + "/fd/" +
                               std::to_string(page->fd()) + ":" +
                               std::to_string(acc::heartbeat::slot_offset(1));
  const auto noted = [&](const Error& error, bool unwinds = false) {
    page->slot(1).peer_failed.store(0);
    const auto pid = in_child("", [&] {
      ::setenv("ACC_HEARTBEAT_PAGE", variable.c_str(), 1);
      acc::testing::Scripted group{0, 2};
      group.script->on_call = [&](const acc::runtime::Call&) { throw error; };
      const auto call = [&] {
        try {
          group.group.barrier();
        } catch (const Error&) {
        }
      };
      struct AtEnd {
        std::function<void()> act;
        ~AtEnd() { act(); }
      };
      if (!unwinds) {
        call();
        return true;
      }
      try {
        const AtEnd end{call};
        throw std::runtime_error{"its own"};
      } catch (const std::runtime_error&) {
        return true;
      }
    });
    CHECK(went_well(pid));
    return read(page->slot(1)).peer_failed;
  };
  CHECK(noted({ErrorCode::peer_lost, "rank 1 is gone", {1}}));
  CHECK(noted({ErrorCode::aborted, "by rank 1", {1}}));
  CHECK(noted({ErrorCode::peer_lost, "the rank that broke the group is unknown"}));
  CHECK_FALSE(noted({ErrorCode::peer_lost, "the others say that this one has left", {0}}));
  CHECK_FALSE(noted({ErrorCode::timed_out, "rank 1 is late", {1}}));
  CHECK_FALSE(noted({ErrorCode::peer_lost, "rank 1 is gone", {1}}, true));
}
