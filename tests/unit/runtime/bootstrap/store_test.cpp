#include "runtime/bootstrap/store.hpp"

#include "runtime/bootstrap/sockets.hpp"
#include "runtime/bootstrap/tcp_store.hpp"
#include "runtime/bootstrap/tcp_store_protocol.hpp"

#include <catch2/catch.hpp>

#include <poll.h>
#include <unistd.h>

#include <future>
#include <string>

using namespace acc::runtime;
using namespace std::chrono_literals;
using SteadyClock = std::chrono::steady_clock;

namespace {

Deadline in(std::chrono::milliseconds time) { return SteadyClock::now() + time; }

std::string fresh_name() {
  static int number = 0;
  return "acc-test/" + std::to_string(::getpid()) + "/" + std::to_string(++number);
}

TcpStorePlace abstract_place(int rank = 0, int size = 2) {
  TcpStorePlace place;
  place.name = fresh_name();
  place.job = "a job";
  place.rank = rank;
  place.size = size;
  return place;
}

TcpStorePlace as_rank(TcpStorePlace place, int rank) {
  place.rank = rank;
  return place;
}

acc::UniqueFd occupied_port(std::uint16_t& port) {
  auto listener = listen_at(*SocketAddress::numeric("127.0.0.1", 0), 8);
  REQUIRE(listener.has_value());
  port = local_address(listener->get()).port();
  return *std::move(listener);
}

struct Opened {
  std::string kind;
  std::shared_ptr<Store> one, other;  // two clients of the same
};

std::vector<Opened> every_kind() {
  auto memory = make_memory_store();
  const auto local = abstract_place();
  TcpStorePlace tcp = abstract_place();
  std::uint16_t port = 0;
  {
    const auto held = occupied_port(port);  // free again below, and nobody else's in between
  }
  tcp.host = "127.0.0.1";
  tcp.port = port;
  tcp.ports = 17;
  auto local_server = open_tcp_store(local, in(10s));
  auto tcp_server = open_tcp_store(tcp, in(10s));
  return {{"memory", memory, memory},
          {"abstract", local_server, open_tcp_store(as_rank(local, 1), in(10s))},
          {"tcp", tcp_server, open_tcp_store(as_rank(tcp, 1), in(10s))}};
}

}  // namespace

TEST_CASE("a store gives back what another rank put there", "[bootstrap][store]") {
  for (auto& [kind, one, other] : every_kind()) {
    CAPTURE(kind);
    const std::string bytes("a\nb\0 c:9", 8);
    one->set("key", bytes);
    CHECK(other->get("key", in(10s)) == bytes);
    CHECK(other->peek("key") == bytes);
    CHECK_FALSE(other->peek("another"));
    one->set("key", "");
    CHECK(other->get("key", in(10s)).empty());
    CHECK(one->add("n", 3) == 3);
    CHECK(other->add("n", -5) == -2);
    CHECK(one->get("n", in(10s)) == "-2");
    const std::string large(3'000'000, 'x');
    other->set("large", large);
    CHECK(one->get("large", in(10s)) == large);
    one->set("word", "x");
    CHECK_THROWS_AS(one->add("word", 1), Error);
  }
}

TEST_CASE("a get waits for its key, while others ask on", "[bootstrap][store]") {
  for (auto& [kind, one, other] : every_kind()) {
    CAPTURE(kind);
    auto waiting =
        std::async(std::launch::async, [store = other] { return store->get("later", in(20s)); });
    other->set("meanwhile", "1");  // the same client isn't blocked by its own question
    CHECK(other->get("meanwhile", in(10s)) == "1");
    one->set("later", "now");
    CHECK(waiting.get() == "now");
  }
}

TEST_CASE("a get that waits too long says for what", "[bootstrap][store]") {
  for (auto& [kind, one, other] : every_kind()) {
    CAPTURE(kind);
    const auto began = SteadyClock::now();
    try {
      (void)other->get("never", in(60ms));
      FAIL("it came");
    } catch (const Error& error) {
      CHECK(error.code() == ErrorCode::timed_out);
      CHECK_THAT(error.what(), Catch::Contains("'never'"));
    }
    CHECK(SteadyClock::now() - began >= 60ms);
    other->set("never", "x");  // the client is as good as before
    CHECK(one->get("never", in(10s)) == "x");
  }
}

TEST_CASE("when rank 0's store goes, the others hear it at once", "[bootstrap][store]") {
  const auto place = abstract_place();
  auto server = open_tcp_store(place, in(10s));
  auto client = open_tcp_store(as_rank(place, 1), in(10s));
  auto waiting = std::async(std::launch::async, [&] { return client->get("key", in(20s)); });
  client->set("reached", "1");
  server.reset();
  CHECK_THROWS_WITH(waiting.get(), Catch::Contains("the store of rank 0 at @" + place.name) &&
                                       Catch::Contains("is gone"));
  CHECK_THROWS_WITH(client->set("a", "b"), Catch::Contains("rank 0"));
}

TEST_CASE("rank 0 takes the next port when somebody has the master's", "[bootstrap][store]") {
  std::uint16_t port = 0;
  // It accepts, says nothing of ours, and closes: as another program's server might.
  const auto foreign = occupied_port(port);
  std::atomic<bool> stop{false};
  auto rude = std::async(std::launch::async, [&] {
    while (!stop) {
      if (!await(foreign.get(), POLLIN, in(20ms))) continue;
      (void)accept_from(foreign.get());
    }
  });
  auto place = abstract_place();
  place.host = "127.0.0.1";
  place.port = port;
  place.ports = 17;
  const auto server = open_tcp_store(place, in(10s));
  server->set("who", "rank 0");
  CHECK(open_tcp_store(as_rank(place, 1), in(10s))->get("who", in(10s)) == "rank 0");
  stop = true;
}

TEST_CASE("the store of another job is no store of ours", "[bootstrap][store]") {
  const auto place = abstract_place();
  const auto server = open_tcp_store(place, in(10s));
  auto stranger = as_rank(place, 1);
  stranger.job = "another";
  CHECK_THROWS_WITH(open_tcp_store(stranger, in(80ms)),
                    Catch::Contains("rank 0 of 2 has not joined") &&
                        Catch::Contains("it serves job 'a job', not 'another'"));
  auto larger = as_rank(place, 1);
  larger.size = 3;
  CHECK_THROWS_WITH(open_tcp_store(larger, in(80ms)),
                    Catch::Contains("world size of 2, rank 1 of 3"));
}

TEST_CASE("without rank 0 the others say where they looked", "[bootstrap][store]") {
  std::uint16_t port = 0;
  { const auto held = occupied_port(port); }
  auto place = abstract_place(1, 3);
  place.host = "127.0.0.1";
  place.port = port;
  try {
    (void)open_tcp_store(place, in(50ms));
    FAIL("somebody is there");
  } catch (const Error& error) {
    CHECK(error.code() == ErrorCode::timed_out);
    CHECK(error.ranks() == std::vector{0});
    CHECK_THAT(error.what(), Catch::Contains("no store at 127.0.0.1:" + std::to_string(port)) &&
                                 Catch::Contains("Connection refused"));
  }
}

TEST_CASE("strangers' bytes don't disturb the store", "[bootstrap][store]") {
  const auto place = abstract_place();
  const auto server = open_tcp_store(place, in(10s));
  const auto say = [&](const std::string& bytes) {
    auto fd = connect_to(SocketAddress::abstract(place.name), in(10s));
    REQUIRE(fd.has_value());
    REQUIRE(send_all(fd->get(), std::as_bytes(std::span{bytes}), in(10s)).has_value());
    char answer[256];
    std::string heard;
    while (await(fd->get(), POLLIN, in(10s))) {
      const auto n = ::recv(fd->get(), answer, sizeof answer, 0);
      if (n <= 0) break;
      heard.append(answer, static_cast<std::size_t>(n));
    }
    return heard;
  };
  CHECK(say("GET / HTTP/1.0\r\n\r\n").empty());
  CHECK(say(tcp_store::magic() + std::string("\xff\xff\xff\xff", 4)).empty());
  CHECK(say(tcp_store::magic() + tcp_store::framed("nonsense")).empty());
  CHECK_THAT(say(tcp_store::magic() + tcp_store::framed(pack({"hello"}))),
             Catch::Contains("refused"));
  const auto hello = tcp_store::magic() + tcp_store::framed(pack({"hello", "a job", "2", "1"}));
  CHECK_THAT(say(hello + tcp_store::framed(pack({"dance"}))), Catch::Contains("'dance'"));
  server->set("still", "well");
  CHECK(server->get("still", in(10s)) == "well");
}
