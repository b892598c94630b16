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
  notifier.send("READY=1");
  char text[64] = {};
  CHECK(::recv(manager.get(), text, sizeof text, MSG_DONTWAIT) == 7);
  CHECK(std::string{text} == "READY=1");
}

TEST_CASE("without a service manager nothing is sent and nothing fails", "[agent]") {
  ::unsetenv("NOTIFY_SOCKET");
  const ServiceNotifier notifier{1};
  CHECK_FALSE(notifier.is_service());
  notifier.send("READY=1");
}
