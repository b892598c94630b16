#include "common/ports.hpp"

#include "common/unique_fd.hpp"

#include <catch2/catch.hpp>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

using namespace acc;

TEST_CASE("a port that somebody listens on is not free, wherever he listens", "[common]") {
  const UniqueFd listener{::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  REQUIRE(::bind(listener.get(), reinterpret_cast<sockaddr*>(&address), length) == 0);
  REQUIRE(::listen(listener.get(), 1) == 0);
  REQUIRE(::getsockname(listener.get(), reinterpret_cast<sockaddr*>(&address), &length) == 0);
  CHECK_FALSE(port_is_free(ntohs(address.sin_port)));
}

TEST_CASE("a picked port can be bound", "[common]") {
  const auto port = pick_free_port();
  REQUIRE(port != 0);
  CHECK(port_is_free(port));
  CHECK_FALSE(port_is_free(0));
}

TEST_CASE("two jobs that start at once don't choose the same port", "[common]") {
  const auto port = pick_free_port();
  auto mine = reserve_port(port);
  REQUIRE(mine);
  CHECK_FALSE(reserve_port(port));
  CHECK_FALSE(port_is_free(port));
  mine.reset();
  CHECK(port_is_free(port));
}

TEST_CASE("two that look at a port at once both find it free", "[common]") {
  // The acc-test of two machines that are one host: one found the port taken by the other's look.
  const auto port = pick_free_port();
  std::atomic<int> taken{0};
  std::vector<std::jthread> lookers;
  for (int looker = 0; looker < 4; ++looker)
    lookers.emplace_back([&] {
      for (int look = 0; look < 500; ++look)
        if (!port_is_free(port)) ++taken;
    });
  lookers.clear();
  CHECK(taken == 0);
}

TEST_CASE("a free port can be reserved while others look at it", "[common]") {
  const auto port = pick_free_port();
  std::atomic<bool> is_over{false};
  std::vector<std::jthread> lookers;
  for (int looker = 0; looker < 3; ++looker)
    lookers.emplace_back([&] {
      while (!is_over) (void)port_is_free(port);
    });
  int refused = 0;
  for (int i = 0; i < 2'000; ++i)
    if (!reserve_port(port)) ++refused;
  is_over = true;
  CHECK(refused == 0);
}

TEST_CASE("a port below 1024 was called taken where it needs root's rights", "[common]") {
  const auto port = pick_free_port();
  const auto mine = reserve_port(port);
  CHECK(port_in_use(port) == "port " + std::to_string(port) + " is already in use");
  int first_for_all = 0;  // 0 in many containers
  std::ifstream{"/proc/sys/net/ipv4/ip_unprivileged_port_start"} >> first_for_all;
  constexpr uid_t kNobody = 65534;
  if (first_for_all <= 1 || ::geteuid() != 0 || ::seteuid(kNobody) != 0) return;
  const auto words = port_in_use(1);
  REQUIRE(::seteuid(0) == 0);
  CHECK(words == "port 1 needs root's rights, as all below " + std::to_string(first_for_all));
}

TEST_CASE("who has taken a port is told only of another user", "[common]") {
  const auto port = pick_free_port();
  CHECK(foreign_port_holder(port).empty());
  const auto mine = reserve_port(port);
  CHECK(foreign_port_holder(port).empty());
}
