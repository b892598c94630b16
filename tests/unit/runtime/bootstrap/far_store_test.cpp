#include "runtime/bootstrap/tcp_store.hpp"
#include "runtime/net/gather.hpp"
#include "runtime/net/sockets.hpp"
#include "tests/support/slow_relay.hpp"

#include <catch2/catch.hpp>

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

std::uint16_t free_port() {
  const auto listener = listen_at(*SocketAddress::numeric("127.0.0.1", 0), 8);
  REQUIRE(listener.has_value());
  return local_address(listener->get()).port();
}

/// Rank 0's store over TCP, and rank 1's, 60 ms away.
struct FarApart {
  FarApart() {
    TcpStorePlace place;
    place.job = "a job";
    place.size = 2;
    place.host = "127.0.0.1";
    place.ports = {free_port()};
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
