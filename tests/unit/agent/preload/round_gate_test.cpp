#include "agent/preload/round_gate.hpp"

#include "common/clocks.hpp"
#include "common/poll_now.hpp"

#include <catch2/catch.hpp>

#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <string>
#include <vector>

using namespace acc;
using namespace acc::agent;
using preload::HeadStart;
using namespace std::chrono_literals;

namespace {

/// A port of loopback, at which this process listens when it is told to.
struct Store {
  UniqueFd socket{::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
  std::uint16_t port = 0;

  Store() {
    sockaddr_in at{};
    at.sin_family = AF_INET;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof at;
    REQUIRE(::bind(socket.get(), reinterpret_cast<sockaddr*>(&at), size) == 0);
    REQUIRE(::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&at), &size) == 0);
    port = ntohs(at.sin_port);
  }
  void listen() const { REQUIRE(::listen(socket.get(), 4) == 0); }
};

/// Three workers, the second of which has rank 0, at a gate.
struct Workers {
  boost::asio::io_context io{1};
  RoundGate gate{io};
  std::vector<UniqueFd> ends;

  void wait_at_gate(std::uint16_t port) {
    const std::string master = "MASTER_PORT=" + std::to_string(port);
    std::vector<std::vector<const char*>> environments;
    for (const char* rank : {"RANK=1", "RANK=0", "RANK=10"})
      environments.push_back({"LOCAL_RANK=0", rank, master.c_str(), nullptr});
    std::vector<const char* const*> pointers;
    for (const auto& one : environments) pointers.push_back(one.data());
    REQUIRE(gate.make(pointers));
    ends.clear();
    for (std::size_t i = 0; i < pointers.size(); ++i) ends.emplace_back(::dup(gate.end_of(i)));
  }
  /// What each reads: the word, -1: nothing yet, -2: the gate was closed.
  std::vector<std::int64_t> read() const {
    std::vector<std::int64_t> words;
    for (const auto& end : ends) {
      std::int64_t word = -1;
      if (is_ready(end.get(), POLLIN) || is_ready(end.get(), POLLHUP))
        word = ::read(end.get(), &word, sizeof word) == sizeof word ? word : -2;
      words.push_back(word);
    }
    return words;
  }
};

using Words = std::vector<std::int64_t>;

}  // namespace

TEST_CASE("rank 0 has a head start where it was seen to serve a store", "[agent][preload]") {
  HeadStart start;
  CHECK(!start.is_due());
  start.on_looked(true);
  CHECK(!start.is_due());  // no rank 0 here
  start.begin_round(29500);
  CHECK(start.is_due());
  CHECK(!start.is_over(false, 1ms));
  CHECK(start.is_over(true, 2ms));
  CHECK(start.is_due());
  start.on_looked(false);
  CHECK(!start.is_due());
}

TEST_CASE("a store that comes late once is waited for no more", "[agent][preload]") {
  HeadStart start;
  start.begin_round(29500);
  start.on_looked(true);
  CHECK(!start.is_over(false, HeadStart::kLongest - 1ms));
  CHECK(start.is_over(false, HeadStart::kLongest));
  start.begin_round(29501);
  start.on_looked(true);
  CHECK(!start.is_due());
}

TEST_CASE("all workers of a round are let go at once where no store is known", "[agent][preload]") {
  const Store store;
  Workers workers;
  workers.wait_at_gate(store.port);
  CHECK(workers.read() == Words{-1, -1, -1});
  workers.gate.open(7);
  CHECK(workers.read() == Words{7, 7, 7});
}

TEST_CASE("the others follow when rank 0 listens", "[agent][preload]") {
  Store store;
  store.listen();
  Workers workers;
  workers.wait_at_gate(store.port);
  workers.gate.look_for_store();
  workers.gate.open(5);
  workers.io.run();
  CHECK(workers.read() == Words{5, 5, 5});

  const Store next;
  workers.wait_at_gate(next.port);
  workers.gate.open(6);
  CHECK(workers.read() == Words{-1, 6, -1});
  workers.gate.close();  // the preloader has ended: what was opened stays open
  next.listen();
  workers.io.restart();
  workers.io.run();
  CHECK(workers.read() == Words{6, -2, 6});
}

TEST_CASE("workers at a gate that is closed end", "[agent][preload]") {
  const Store store;
  Workers workers;
  workers.wait_at_gate(store.port);
  workers.gate.close();
  CHECK(workers.read() == Words{-2, -2, -2});
}
