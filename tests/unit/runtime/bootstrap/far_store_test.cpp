#include "runtime/bootstrap/tcp_store.hpp"
#include "runtime/net/gather.hpp"
#include "runtime/net/sockets.hpp"
#include "tests/support/descriptors.hpp"
#include "tests/support/free_port.hpp"
#include "tests/support/slow_relay.hpp"

#include <catch2/catch.hpp>

#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <future>
#include <memory>
#include <string>
#include <vector>

using namespace acc::runtime;
using namespace std::chrono_literals;
using SteadyClock = std::chrono::steady_clock;

namespace {

Deadline in(std::chrono::milliseconds time) { return SteadyClock::now() + time; }

/// Rank 0's store over TCP, and rank 1's, 60 ms away.
struct FarApart {
  FarApart() {
    TcpStorePlace place;
    place.job = "a job";
    place.size = 2;
    place.host = "127.0.0.1";
    place.ports = {testing::free_port()};
    near = open_tcp_store(place, in(10s));
    relay = std::make_unique<acc::testing::SlowRelay>(place.ports[0], 30ms);
    place.ports = {relay->port()};
    place.rank = 1;
    far = open_tcp_store(place, in(10s));
  }
  std::shared_ptr<Store> near, far;
  std::unique_ptr<acc::testing::SlowRelay> relay;
};

Gather::Options party(int number, std::function<void()> check) {
  return {"k",
          number,
          2,
          in(20s),
          [](const Gather::Texts&) {
            return Error{ErrorCode::timed_out, "late"};
          },
          std::move(check)};
}

}  // namespace

TEST_CASE("a rank 60 ms away from rank 0 was told that rank 0's process had ended",
          "[bootstrap][store]") {
  const FarApart stores;
  std::atomic<int> looks{0};
  std::promise<void> has_waited;
  auto far = std::async(std::launch::async, [&] {
    Gather gather{*stores.far, party(1, [&] {
                    if (++looks == 20) has_waited.set_value();
                  })};
    return gather.all("far");
  });
  REQUIRE(has_waited.get_future().wait_for(20s) == std::future_status::ready);
  Gather gather{*stores.near, party(0, [] {})};
  const std::vector<std::string> all{"near", "far"};
  CHECK(gather.all("near") == all);
  CHECK(far.get() == all);
  CHECK(stores.relay->connections() == 1);  // one for each look, before
}

TEST_CASE("a store that doesn't answer a new connection in time is late, not gone",
          "[bootstrap][store]") {
  const FarApart stores;
  auto waiting = std::async(std::launch::async, [&] { return stores.far->get("key", in(20s)); });
  while (stores.relay->connections() < 2) {  // one of both uses the first connection
    try {
      (void)stores.far->get("another", in(25ms));
      FAIL("it was set");
    } catch (const Error& error) {
      CHECK(error.code() == ErrorCode::timed_out);
    }
  }
  stores.near->set("key", "x");
  CHECK(waiting.get() == "x");
}

TEST_CASE("what a look throws ends the wait for a store that doesn't answer",
          "[bootstrap][store]") {
  const FarApart stores;
  const auto began = SteadyClock::now();
  CHECK_THROWS_WITH(stores.far->get_looking("key", in(20s),
                                            [] {
                                              throw Error{ErrorCode::peer_lost, "rank 2 is gone"};
                                            }),
                    "rank 2 is gone");
  CHECK(SteadyClock::now() - began < 10s);
  stores.far->set("key", "x");
  CHECK(stores.near->get("key", in(10s)) == "x");
}

TEST_CASE("a store sent its question into the program's socket under the old number",
          "[bootstrap][store]") {
  const FarApart stores;
  stores.far->set("key", "x");  // over the connection that is idle then
  TcpStorePlace place;
  place.job = "a job";
  place.size = 2;
  place.rank = 1;
  place.host = "127.0.0.1";
  place.ports = {stores.relay->port()};
  std::shared_ptr<Store> store;
  int idle = -1;
  {
    // By the relay's thread other descriptors are opened, too: the client's is that of its port.
    const auto made = acc::testing::descriptors_of([&] { store = open_tcp_store(place, in(10s)); });
    for (const int fd : made)
      if (peer_address(fd).port() == stores.relay->port()) idle = fd;
  }
  REQUIRE(idle >= 0);
  int users[2];
  REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM, 0, users) == 0);
  acc::testing::replace_of_others(idle, users[0]);
  CHECK(store->peek("key") == "x");  // over a new connection
  store.reset();
  char byte = 0;
  CHECK(::recv(users[1], &byte, 1, MSG_DONTWAIT) == -1);
  CHECK(::close(idle) == 0);  // nobody has closed it
  for (const int fd : users) ::close(fd);
}

TEST_CASE("rank 0's store took no rank any more once the program had closed its descriptors",
          "[bootstrap][store]") {
  TcpStorePlace place;
  place.job = "a job";
  place.size = 2;
  place.host = "127.0.0.1";
  place.ports = {testing::free_port()};
  std::shared_ptr<Store> near, far;
  const auto fds = acc::testing::descriptors_of([&] {
    near = open_tcp_store(place, in(10s));
    place.rank = 1;
    far = open_tcp_store(place, in(10s));
    far->set("key", "x");
  });
  std::vector<std::array<int, 2>> users;
  for (const int fd : fds) {
    auto& pair = users.emplace_back();
    REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM, 0, pair.data()) == 0);
    acc::testing::replace_of_others(fd, pair[0]);
  }
  CHECK(far->get("key", in(20s)) == "x");
  near->set("key", "y");
  CHECK(far->get("key", in(20s)) == "y");
  far.reset();
  near.reset();
  for (const auto& pair : users) {
    char byte = 0;
    CHECK(::recv(pair[1], &byte, 1, MSG_DONTWAIT) == -1);
    for (const int fd : pair) ::close(fd);
  }
  for (const int fd : fds) CHECK(::close(fd) == 0);
}
