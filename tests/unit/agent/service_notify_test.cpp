#include "agent/service_notify.hpp"

#include <catch2/catch.hpp>

#include <sys/socket.h>
#include <sys/un.h>

#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <string>

using namespace acc;
using namespace acc::agent;

TEST_CASE("states reach the service manager's socket, also an abstract one", "[agent]") {
  const UniqueFd manager{::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0)};
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  socklen_t length = sizeof(sa_family_t);  // the kernel picks an abstract name
  REQUIRE(::bind(manager.get(), reinterpret_cast<sockaddr*>(&address), length) == 0);
  length = sizeof address;
  REQUIRE(::getsockname(manager.get(), reinterpret_cast<sockaddr*>(&address), &length) == 0);
  const std::string name{address.sun_path + 1, length - offsetof(sockaddr_un, sun_path) - 1};
  ::setenv("NOTIFY_SOCKET", ("@" + name).c_str(), 1);
  ::setenv("WATCHDOG_USEC", "3000000", 1);
  ::setenv("WATCHDOG_PID", "42", 1);
  const ServiceNotifier notifier{42};
  const ServiceNotifier not_ours{43};
  ::unsetenv("NOTIFY_SOCKET");
  ::unsetenv("WATCHDOG_USEC");
  ::unsetenv("WATCHDOG_PID");
  CHECK(notifier.is_service());
  CHECK(notifier.watchdog_period() == Millis{1500});
  CHECK_FALSE(not_ours.watchdog_period().has_value());
  const auto received = [&] {
    char text[64] = {};
    const auto n = ::recv(manager.get(), text, sizeof text, MSG_DONTWAIT);
    return std::string{text, n > 0 ? static_cast<std::size_t>(n) : 0};
  };
  notifier.ready("2 workers running");
  CHECK(received() == "READY=1\nSTATUS=2 workers running");
  notifier.status("1 worker running");
  CHECK(received() == "STATUS=1 worker running");
  notifier.feed_watchdog();
  CHECK(received() == "WATCHDOG=1");
  notifier.stopping("by SIGTERM");
  CHECK(received() == "STOPPING=1\nSTATUS=by SIGTERM");
}

TEST_CASE("without a service manager nothing is sent and nothing fails", "[agent]") {
  ::unsetenv("NOTIFY_SOCKET");
  const ServiceNotifier notifier{1};
  CHECK_FALSE(notifier.is_service());
  notifier.ready("");
}
