#include "rendezvous/socket_users.hpp"

#include "common/unique_fd.hpp"

#include <catch2/catch.hpp>

#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <fstream>
#include <sstream>
#include <string>
#include <thread>
#include <utility>

using namespace acc;
using acc::rendezvous::SocketUsers;
using Side = SocketUsers::Side;

namespace {

sockaddr_in loopback(in_port_t port) {
  sockaddr_in at{};
  at.sin_family = AF_INET;
  at.sin_port = port;
  at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return at;
}

/// A listener of this user and a connection to it.
struct Connection {
  UniqueFd listener{::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
  UniqueFd client{::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
  UniqueFd server;

  /// The client's socket is made by this user, 0: by us.
  explicit Connection(uid_t user) {
    auto at = loopback(0);
    socklen_t size = sizeof at;
    REQUIRE(::bind(listener.get(), reinterpret_cast<sockaddr*>(&at), size) == 0);
    REQUIRE(::listen(listener.get(), 4) == 0);
    REQUIRE(::getsockname(listener.get(), reinterpret_cast<sockaddr*>(&at), &size) == 0);
    if (user == 0) {
      REQUIRE(::connect(client.get(), reinterpret_cast<sockaddr*>(&at), size) == 0);
    } else {
      // The socket belongs to the user who makes it.
      child_ = ::fork();
      if (child_ == 0) {
        if (::setresuid(user, user, user) != 0) ::_exit(1);
        const int own = ::socket(AF_INET, SOCK_STREAM, 0);
        if (::connect(own, reinterpret_cast<sockaddr*>(&at), size) != 0) ::_exit(2);
        char byte = 0;
        [[maybe_unused]] const auto n = ::read(own, &byte, 1);  // until the test is over
        ::_exit(0);
      }
    }
    server = UniqueFd{::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC)};
    REQUIRE(server);
  }
  ~Connection() {
    server.reset();
    if (child_ > 0) ::waitpid(child_, nullptr, 0);
  }
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

 private:
  pid_t child_ = 0;
};

}  // namespace

TEST_CASE("both sides of a loopback connection know whose the other one is",
          "[rendezvous][socket_users]") {
  const Connection own{0};
  SocketUsers users;
  const auto who_connects = users.at_other_end(own.server.get(), Side::connects);
  if (who_connects.known == SocketUsers::Known::unavailable) {
    WARN("skipped: this kernel doesn't say whose a socket is");
    return;
  }
  CHECK(who_connects.known == SocketUsers::Known::yes);
  CHECK(who_connects.user == ::geteuid());
  const auto who_listens = users.at_other_end(own.client.get(), Side::listens);
  CHECK(who_listens.known == SocketUsers::Known::yes);
  CHECK(who_listens.user == ::geteuid());
  CHECK_FALSE(users.objection(own.server.get(), Side::connects));
  CHECK_FALSE(users.objection(own.client.get(), Side::listens));
}

TEST_CASE("another user of the machine may not join a job on loopback",
          "[rendezvous][socket_users]") {
  if (::geteuid() != 0) {
    WARN("skipped: only root can be another user");
    return;
  }
  const Connection theirs{1001};
  SocketUsers users;
  const auto who = users.at_other_end(theirs.server.get(), Side::connects);
  if (who.known == SocketUsers::Known::unavailable) {
    WARN("skipped: this kernel doesn't say whose a socket is");
    return;
  }
  CHECK(who.user == 1001);
  const auto objection = users.objection(theirs.server.get(), Side::connects);
  REQUIRE(objection);
  CHECK_THAT(*objection, Catch::StartsWith("it belongs to user 1001, this side to user 0"));
}

TEST_CASE("a peer that hung up is told as that", "[rendezvous][socket_users]") {
  Connection own{0};
  SocketUsers users;
  if (users.at_other_end(own.server.get(), Side::connects).known == SocketUsers::Known::unavailable)
    return;
  const linger reset{1, 0};
  ::setsockopt(own.client.get(), SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
  own.client.reset();
  CHECK(users.at_other_end(own.server.get(), Side::connects).known == SocketUsers::Known::gone);
}

TEST_CASE("a peer that closed its socket is told as that, and not as root's",
          "[rendezvous][socket_users]") {
  SocketUsers users;
  {
    const Connection probe{0};
    if (users.at_other_end(probe.server.get(), Side::connects).known ==
        SocketUsers::Known::unavailable) {
      WARN("skipped: this kernel doesn't say whose a socket is");
      return;
    }
  }
  const auto look = [&](const Connection& own) {
    return users.at_other_end(own.server.get(), Side::connects).known;
  };
  Connection half{0};
  REQUIRE(::shutdown(half.client.get(), SHUT_WR) == 0);
  CHECK(look(half) == SocketUsers::Known::yes);  // a process holds it

  Connection own{0};
  sockaddr_in at{};
  socklen_t size = sizeof at;
  REQUIRE(::getsockname(own.client.get(), reinterpret_cast<sockaddr*>(&at), &size) == 0);
  own.client.reset();
  CHECK(look(own) == SocketUsers::Known::gone);  // also while its FIN isn't acknowledged yet
  // The near end of a line of /proc/net/tcp, "0100007F:PORT 0100007F:PORT STATE".
  char port[16];
  std::snprintf(port, sizeof port, "%04X", ntohs(at.sin_port));
  const auto is_acknowledged = [&] {
    std::ifstream table{"/proc/net/tcp"};
    for (std::string line; std::getline(table, line);) {
      std::istringstream words{line};
      std::string slot, near, far, state;
      words >> slot >> near >> far >> state;
      if (near == std::string{"0100007F:"} + port) return state == "05" || state == "06";
    }
    return false;
  };
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds{20};
  while (!is_acknowledged() && std::chrono::steady_clock::now() < deadline)
    std::this_thread::sleep_for(std::chrono::milliseconds{1});
  REQUIRE(is_acknowledged());
  CHECK(look(own) == SocketUsers::Known::gone);
  const auto objection = users.objection(own.server.get(), Side::connects);
  REQUIRE(objection);
  CHECK(*objection == "closed the connection unexpectedly");
}

TEST_CASE("a listener is found by its port, also one with all addresses",
          "[rendezvous][socket_users]") {
  const auto port_of = [](const UniqueFd& socket, const sockaddr* at, socklen_t size) {
    REQUIRE(::bind(socket.get(), at, size) == 0);
    sockaddr_storage bound{};
    socklen_t length = sizeof bound;
    REQUIRE(::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&bound), &length) == 0);
    return ntohs(reinterpret_cast<const sockaddr_in&>(bound).sin_port);  // both families: one place
  };
  SocketUsers users;
  const auto v4 = loopback(0);
  const UniqueFd one{::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
  const auto port = port_of(one, reinterpret_cast<const sockaddr*>(&v4), sizeof v4);
  CHECK(!users.is_listening(port));
  REQUIRE(::listen(one.get(), 1) == 0);
  CHECK(users.is_listening(port));

  sockaddr_in6 any{};
  any.sin6_family = AF_INET6;
  const UniqueFd all{::socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0)};
  if (!all) return;  // no IPv6 here
  const auto wide = port_of(all, reinterpret_cast<const sockaddr*>(&any), sizeof any);
  CHECK(!users.is_listening(wide));
  REQUIRE(::listen(all.get(), 1) == 0);
  CHECK(users.is_listening(wide));
}
