#include "agent/service_notify.hpp"

#include "agent/service_watchdog.hpp"

#include <catch2/catch.hpp>

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <future>
#include <string>

using namespace acc;
using namespace acc::agent;

namespace {

/// A service manager's socket with an abstract name that the kernel picks.
struct Manager {
  UniqueFd socket{::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0)};
  std::string name;
  Manager() {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    socklen_t length = sizeof(sa_family_t);
    REQUIRE(::bind(socket.get(), reinterpret_cast<sockaddr*>(&address), length) == 0);
    length = sizeof address;
    REQUIRE(::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&address), &length) == 0);
    name.assign(address.sun_path + 1, length - offsetof(sockaddr_un, sun_path) - 1);
  }
  /// As process `pid` of a service with a watchdog of `usec` finds it.
  ServiceNotifier notifier(pid_t pid, const char* usec) const {
    ::setenv("NOTIFY_SOCKET", ("@" + name).c_str(), 1);
    ::setenv("WATCHDOG_USEC", usec, 1);
    ::setenv("WATCHDOG_PID", "42", 1);
    ServiceNotifier made{pid};
    ::unsetenv("NOTIFY_SOCKET");
    ::unsetenv("WATCHDOG_USEC");
    ::unsetenv("WATCHDOG_PID");
    return made;
  }
  /// Empty: nothing was sent.
  [[nodiscard]] std::string received() const {
    char text[64] = {};
    const auto n = ::recv(socket.get(), text, sizeof text, MSG_DONTWAIT);
    return {text, n > 0 ? static_cast<std::size_t>(n) : 0};
  }
};

}  // namespace

TEST_CASE("states reach the service manager's socket, also an abstract one", "[agent]") {
  const Manager manager;
  const auto notifier = manager.notifier(42, "3000000");
  const auto not_ours = manager.notifier(43, "3000000");
  CHECK(notifier.is_service());
  CHECK(notifier.watchdog_period() == Millis{1500});
  CHECK_FALSE(not_ours.watchdog_period().has_value());
  notifier.ready("2 workers running");
  CHECK(manager.received() == "READY=1\nSTATUS=2 workers running");
  notifier.status("1 worker running");
  CHECK(manager.received() == "STATUS=1 worker running");
  notifier.feed_watchdog();
  CHECK(manager.received() == "WATCHDOG=1");
  notifier.stopping("by SIGTERM");
  CHECK(manager.received() == "STOPPING=1\nSTATUS=by SIGTERM");
}

TEST_CASE("a reload is told to a manager that is behind, and status lines are not waited for",
          "[agent]") {
  const Manager manager;
  const auto notifier = manager.notifier(42, "0");
  int most = 0;
  REQUIRE(std::ifstream{"/proc/sys/net/unix/max_dgram_qlen"} >> most);
  std::string last;
  const auto read_all = [&] {
    for (std::string next; !(next = manager.received()).empty();) last = next;
  };
  // A try is lost where this thread stands still for half a second.
  for (int i = 0; i < 20 && !last.starts_with("READY"); ++i) {
    for (int k = 0; k < most + 2; ++k) notifier.status("full");
    std::atomic<pid_t> thread{0};
    auto told = std::async(std::launch::async, [&] {
      thread = ::gettid();
      notifier.ready("again");
    });
    const auto is_waiting = [&] {
      std::ifstream file{"/proc/self/task/" + std::to_string(thread) + "/stat"};
      std::string stat;
      return std::getline(file, stat) && stat.find(") S ") != std::string::npos;
    };
    while (!is_waiting() && told.wait_for(Millis{1}) != std::future_status::ready) {
    }
    while (told.wait_for(Millis{1}) != std::future_status::ready) read_all();
    read_all();
  }
  CHECK(last == "READY=1\nSTATUS=again");
}

TEST_CASE("a manager that reads nothing costs half a second, not the job", "[agent]") {
  const Manager manager;
  const auto notifier = manager.notifier(42, "0");
  int most = 0;
  REQUIRE(std::ifstream{"/proc/sys/net/unix/max_dgram_qlen"} >> most);
  for (int i = 0; i < most + 2; ++i) notifier.status("full");
  const auto began = std::chrono::steady_clock::now();
  notifier.ready("again");
  CHECK(std::chrono::steady_clock::now() - began >= Millis{400});
}

TEST_CASE("systemd's watchdog is fed while the service is well", "[agent]") {
  const Manager manager;
  const auto notifier = manager.notifier(42, "2000");
  boost::asio::io_context io{1};
  int asked = 0;
  bool is_well = false;
  ServiceWatchdog watchdog{io, notifier, [&] {
                             ++asked;
                             return is_well;
                           }};
  watchdog.begin();
  while (asked < 3) REQUIRE(io.run_one_for(std::chrono::seconds{10}) == 1);
  CHECK(manager.received().empty());
  is_well = true;
  while (asked < 4) REQUIRE(io.run_one_for(std::chrono::seconds{10}) == 1);
  CHECK(manager.received() == "WATCHDOG=1");
}

TEST_CASE("without a service manager nothing is sent and nothing fails", "[agent]") {
  ::unsetenv("NOTIFY_SOCKET");
  const ServiceNotifier notifier{1};
  CHECK_FALSE(notifier.is_service());
  notifier.ready("");
}
