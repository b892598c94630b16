#include "agent/accept_loop.hpp"

#include <boost/asio/steady_timer.hpp>
#include <catch2/catch.hpp>

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <chrono>
#include <memory>
#include <new>
#include <vector>

using namespace acc;
using namespace acc::agent;

namespace {

/// A listening socket with a name of the kernel's choice, and clients of it.
struct Place {
  UniqueFd listening{::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)};
  sockaddr_un at{};
  socklen_t size = sizeof at;

  Place() {
    sockaddr_un any{};
    any.sun_family = AF_UNIX;
    REQUIRE(::bind(listening.get(), reinterpret_cast<sockaddr*>(&any), sizeof(sa_family_t)) == 0);
    REQUIRE(::listen(listening.get(), 4096) == 0);
    REQUIRE(::getsockname(listening.get(), reinterpret_cast<sockaddr*>(&at), &size) == 0);
  }
  [[nodiscard]] UniqueFd connect() const {
    UniqueFd fd{::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)};
    REQUIRE(::connect(fd.get(), reinterpret_cast<const sockaddr*>(&at), size) == 0);
    return fd;
  }
};

template <class Condition>
bool run_until(boost::asio::io_context& io, Condition condition) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds{20};
  while (!condition() && std::chrono::steady_clock::now() < deadline)
    io.run_one_for(std::chrono::milliseconds{200});
  return condition();
}

}  // namespace

TEST_CASE("an accept loop takes all that wait, also more than in one turn", "[agent][accept]") {
  boost::asio::io_context io{1};
  Place place;
  std::vector<UniqueFd> taken;
  AcceptLoop loop{io, "shortage", [&](UniqueFd fd) { taken.push_back(std::move(fd)); }};
  std::vector<UniqueFd> clients;
  for (int i = 0; i < 150; ++i) clients.push_back(place.connect());
  REQUIRE(loop.start(std::move(place.listening)));
  CHECK(run_until(io, [&] { return taken.size() == 150; }));
  CHECK((::fcntl(taken.front().get(), F_GETFL) & O_NONBLOCK) != 0);
  CHECK((::fcntl(taken.front().get(), F_GETFD) & FD_CLOEXEC) != 0);
  // What arrives before a decision is taken without the loop's turn, and only once.
  clients.push_back(place.connect());
  loop.accept_waiting();
  CHECK(taken.size() == 151);
  clients.push_back(place.connect());
  CHECK(run_until(io, [&] { return taken.size() == 152; }));
}

TEST_CASE("an accept loop without descriptors pauses, and goes on when there are some",
          "[agent][accept]") {
  boost::asio::io_context io{1};
  Place place;
  std::vector<UniqueFd> taken;
  AcceptLoop loop{io, "shortage", [&](UniqueFd fd) { taken.push_back(std::move(fd)); }};
  const auto client = place.connect();
  REQUIRE(loop.start(std::move(place.listening)));
  boost::asio::steady_timer wake{io};
  rlimit before{};
  REQUIRE(::getrlimit(RLIMIT_NOFILE, &before) == 0);
  const UniqueFd next{::open("/dev/null", O_RDONLY | O_CLOEXEC)};
  const rlimit none{static_cast<rlim_t>(next.get()), before.rlim_max};
  REQUIRE(::setrlimit(RLIMIT_NOFILE, &none) == 0);
  std::size_t turns = 0;
  const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds{350};
  while (std::chrono::steady_clock::now() < end)
    turns += io.run_one_for(std::chrono::milliseconds{50});
  REQUIRE(::setrlimit(RLIMIT_NOFILE, &before) == 0);
  CHECK(taken.empty());
  CHECK(turns < 20);
  CHECK(run_until(io, [&] { return taken.size() == 1; }));
}

TEST_CASE("a connection's taker may close the accept loop, or start it at another place",
          "[agent][accept]") {
  boost::asio::io_context io{1};
  Place one;
  Place other;
  int taken = 0;
  std::unique_ptr<AcceptLoop> loop;
  loop = std::make_unique<AcceptLoop>(io, "shortage", [&](UniqueFd) {
    ++taken;
    if (other.listening) {
      REQUIRE(loop->start(std::move(other.listening)));
    } else {
      loop->close();
    }
  });
  const auto first = one.connect();
  const auto left = one.connect();
  const auto second = other.connect();
  const auto late = other.connect();
  REQUIRE(loop->start(std::move(one.listening)));
  CHECK(run_until(io, [&] { return !loop->is_open(); }));
  io.poll();
  CHECK(taken == 2);
}

TEST_CASE("after one connection's taker had thrown, a daemon accepted none and passed for well",
          "[agent][accept]") {
  boost::asio::io_context io{1};
  Place place;
  int taken = 0;
  AcceptLoop loop{io, "shortage", [&](UniqueFd) {
                    if (++taken == 1) throw std::bad_alloc{};
                  }};
  CHECK_FALSE(loop.is_accepting());
  const auto first = place.connect();
  REQUIRE(loop.start(UniqueFd{::dup(place.listening.get())}));
  CHECK_THROWS_AS(run_until(io, [&] { return taken == 1; }), std::bad_alloc);
  CHECK(loop.is_accepting());
  const auto second = place.connect();
  CHECK(run_until(io, [&] { return taken == 2; }));
  loop.close();
  CHECK_FALSE(loop.is_accepting());
}
