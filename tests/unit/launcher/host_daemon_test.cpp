#include "launcher/host_daemon.hpp"

#include "common/unique_fd.hpp"

#include <catch2/catch.hpp>

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <string>
#include <thread>

using namespace acc;
using namespace acc::launcher;

namespace {

constexpr uid_t kStranger = 65534;

/// XDG_RUNTIME_DIR with a process that listens where a user's own acc-agent does, until the end of
/// the test, and closes what it has accepted.
class Listener {
 public:
  explicit Listener(uid_t user) {
    REQUIRE(::mkdtemp(folder_.data()) != nullptr);
    std::filesystem::create_directory(folder_ + "/acc");
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    path().copy(address.sun_path, sizeof address.sun_path - 1);
    const auto* to = reinterpret_cast<const sockaddr*>(&address);
    REQUIRE(::bind(fd_.get(), to, sizeof address) == 0);
    const auto before = ::geteuid();
    const bool changes = user != before;  // the kernel notes the user of listen()
    if (changes) REQUIRE(::seteuid(user) == 0);
    const int failed = ::listen(fd_.get(), 8);
    if (changes) REQUIRE(::seteuid(before) == 0);
    REQUIRE(failed == 0);
    accepting_ = std::thread{[this] {
      for (;;) {
        const UniqueFd peer{::accept4(fd_.get(), nullptr, nullptr, SOCK_CLOEXEC)};
        if (!peer) return;
        char text[256];
        [[maybe_unused]] const auto n = ::read(peer.get(), text, sizeof text);
      }
    }};
  }
  ~Listener() {
    ::shutdown(fd_.get(), SHUT_RDWR);
    accepting_.join();
    std::filesystem::remove_all(folder_);
  }
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;
  [[nodiscard]] const std::string& folder() const { return folder_; }
  [[nodiscard]] std::string path() const { return folder_ + "/acc/agent.sock"; }
  [[nodiscard]] DaemonFound found() const {
    return find_daemon({{"XDG_RUNTIME_DIR", folder_}}, folder_ + "/none");
  }

 private:
  std::string folder_ = "/tmp/acc-host-daemon-XXXXXX";
  UniqueFd fd_{::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)};
  std::thread accepting_;
};

bool is_root() {
  if (::geteuid() == 0) return true;
  WARN("SKIPPED: needs root, to listen as another user");
  return false;
}

}  // namespace

TEST_CASE("a launch with --hosts finds the user's own acc-agent", "[launcher][hosts]") {
  const Listener listener{::geteuid()};
  const auto found = listener.found();
  CHECK(found.socket == listener.path());
  CHECK(found.why.empty());
}

TEST_CASE(
    "a launch with --hosts gave the command to another user's process in the place of acc-agent",
    "[launcher][hosts]") {
  if (!is_root()) return;
  const Listener listener{kStranger};
  const auto found = listener.found();
  CHECK(found.socket.empty());
  CHECK_THAT(found.why, Catch::Contains(listener.path()) && Catch::Contains("another user") &&
                            Catch::Contains("unset XDG_RUNTIME_DIR") &&
                            Catch::Contains("ACC_AGENT_SOCKET"));
  // The user named it, and knows whose it is.
  CHECK(find_daemon({{"ACC_AGENT_SOCKET", listener.path()}}).socket == listener.path());
  const auto of_system = find_daemon({}, listener.path());
  CHECK(of_system.socket.empty());
  CHECK_THAT(of_system.why, Catch::Contains("would receive the command: name the socket in"));
}

TEST_CASE("a launch with --hosts asked for acc-agent in another user's XDG_RUNTIME_DIR",
          "[launcher][hosts]") {
  const Listener listener{::geteuid()};
  SECTION("of another user") {
    if (!is_root()) return;
    REQUIRE(::chown(listener.folder().c_str(), kStranger, kStranger) == 0);
  }
  SECTION("all may write to it") { REQUIRE(::chmod(listener.folder().c_str(), 01777) == 0); }
  const auto found = listener.found();
  CHECK(found.socket.empty());
  CHECK_THAT(found.why, Catch::Contains("another user"));
}
