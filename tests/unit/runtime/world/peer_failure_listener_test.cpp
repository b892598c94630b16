#include "runtime/world/peer_failure_listener.hpp"

#include "common/unique_fd.hpp"
#include "common/worker_socket.hpp"

#include <catch2/catch.hpp>

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstddef>
#include <cstring>
#include <future>
#include <string>

using namespace acc;
using namespace acc::runtime;
using namespace std::chrono_literals;

namespace {

/// Notes the first rank that it is told of.
class NotingBackend final : public Backend {
 public:
  [[nodiscard]] std::string_view name() const noexcept override { return "noting"; }
  void run(const Call&) override {}
  SharedBuffer allocate(std::size_t, const Call&) override { return {}; }
  void abort(const runtime::Error&) noexcept override {}
  void lost(int rank, const std::string& how) noexcept override {
    lost_.set_value(std::to_string(rank) + " " + how);
  }
  [[nodiscard]] std::string await() {
    auto lost = lost_.get_future();
    return lost.wait_for(5s) == std::future_status::ready ? lost.get() : "nobody";
  }

 private:
  std::promise<std::string> lost_;
};

class FakeAgent {
 public:
  FakeAgent() : name_{"@acc-listener-test-" + std::to_string(::getpid())} {
    listening_ = UniqueFd{::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)};
    sockaddr_un at{};
    at.sun_family = AF_UNIX;
    std::memcpy(at.sun_path + 1, name_.data() + 1, name_.size() - 1);
    const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + name_.size());
    REQUIRE(::bind(listening_.get(), reinterpret_cast<sockaddr*>(&at), length) == 0);
    REQUIRE(::listen(listening_.get(), 4) == 0);
  }
  [[nodiscard]] const std::string& name() const { return name_; }

  /// The next client that asks for lost ranks; nothing: none did within 5 s.
  [[nodiscard]] UniqueFd await_request() const {
    if (!is_ready(listening_.get())) return {};
    UniqueFd client{::accept4(listening_.get(), nullptr, nullptr, SOCK_CLOEXEC)};
    std::string asked;
    while (asked.find("lost ") == std::string::npos) {
      char chunk[256];
      const auto n = is_ready(client.get()) ? ::read(client.get(), chunk, sizeof chunk) : 0;
      if (n <= 0) return {};
      asked.append(chunk, static_cast<std::size_t>(n));
    }
    return client;
  }

 private:
  static bool is_ready(int fd) {
    pollfd wait{fd, POLLIN, 0};
    return ::poll(&wait, 1, 5'000) == 1;
  }
  std::string name_;
  UniqueFd listening_;
};

}  // namespace

TEST_CASE("a process forked from one that listens to the agent was told of no lost rank",
          "[world]") {
  const FakeAgent agent;
  NotingBackend of_parent;
  auto watched = PeerFailureListener::watch(agent.name(), 0, of_parent, {0, 1});
  const UniqueFd parent = agent.await_request();
  REQUIRE(parent);
  const pid_t pid = ::fork();
  REQUIRE(pid >= 0);
  if (pid == 0) {
    ::alarm(20);
    watched.reset();  // the parent's
    NotingBackend own;
    const auto listens = PeerFailureListener::watch(agent.name(), 0, own, {0, 7});
    ::_exit(own.await() == "1 killed by SIGKILL" ? 0 : 1);
  }
  const UniqueFd child = agent.await_request();
  CHECK(child);
  const std::string answer = to_text(worker_socket::Answer{
      .word = worker_socket::Answer::Word::value,
      .value = to_text(std::vector<worker_socket::LostRank>{{Rank{7}, 70, "killed by SIGKILL"}})});
  if (child)
    CHECK(::send(child.get(), answer.data(), answer.size(), MSG_NOSIGNAL) ==
          static_cast<ssize_t>(answer.size()));
  int status = -1;
  ::waitpid(pid, &status, 0);
  CHECK(status == 0);
}
