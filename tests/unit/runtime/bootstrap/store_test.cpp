#include "runtime/net/store.hpp"

#include "runtime/bootstrap/launch_environment.hpp"
#include "runtime/bootstrap/tcp_store.hpp"
#include "runtime/bootstrap/tcp_store_protocol.hpp"
#include "runtime/net/sockets.hpp"
#include "tests/support/free_port.hpp"

#include <catch2/catch.hpp>

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <future>
#include <map>
#include <string>
#include <vector>

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

struct Opened {
  std::string kind;
  std::shared_ptr<Store> one, other;  // two clients of the same
};

std::vector<Opened> every_kind() {
  auto memory = make_memory_store();
  const auto local = abstract_place();
  TcpStorePlace tcp = abstract_place();
  const std::uint16_t port = testing::free_port();
  tcp.host = "127.0.0.1";
  tcp.ports = {port};
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

TEST_CASE("a key that was removed isn't there, and may be set anew", "[bootstrap][store]") {
  for (auto& [kind, one, other] : every_kind()) {
    CAPTURE(kind);
    one->set("key", "x");
    one->set("large", std::string(600'000, 'x'));
    (void)one->add("n", 3);
    for (const std::string key : {"key", "large", "n", "never there"}) {
      other->remove(key);
      CHECK_FALSE(one->peek(key));
    }
    CHECK_FALSE(one->peek("large#0"));
    CHECK(other->add("n", 1) == 1);
    one->set("key", "y");
    CHECK(other->peek("key") == "y");
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

/// A port whose owner accepts, says nothing of ours, and closes: as another program's server might.
class Stranger {
 public:
  Stranger() : listener_{testing::occupied_port(port)} {
    serving_ = std::async(std::launch::async, [this] {
      while (!stop_)
        if (await(listener_.get(), POLLIN, in(20ms))) (void)accept_from(listener_.get());
    });
  }
  ~Stranger() { stop_ = true; }
  Stranger(const Stranger&) = delete;
  Stranger& operator=(const Stranger&) = delete;
  std::uint16_t port = 0;

 private:
  std::atomic<bool> stop_{false};
  acc::UniqueFd listener_;
  std::future<void> serving_;
};

/// What happens to a rank in a process of its own; "" if it gets in. Told through `out`.
class OtherProcess {
 public:
  explicit OtherProcess(const TcpStorePlace& place) {
    int pair[2];
    REQUIRE(::pipe(pair) == 0);
    pid_ = ::fork();
    REQUIRE(pid_ >= 0);
    if (pid_ == 0) {
      std::string said = "in";
      std::shared_ptr<Store> store;
      try {
        store = open_tcp_store(place, in(5s));
      } catch (const Error& error) {
        said = std::string{to_string(error.code())} + ": " + error.what();
      }
      [[maybe_unused]] const auto n = ::write(pair[1], said.data(), said.size());
      ::close(pair[1]);
      ::pause();
      ::_exit(0);
    }
    ::close(pair[1]);
    out_.reset(pair[0]);
  }
  ~OtherProcess() { end(); }
  OtherProcess(const OtherProcess&) = delete;
  OtherProcess& operator=(const OtherProcess&) = delete;
  void end() {
    if (pid_ == 0) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
    pid_ = 0;
  }
  std::string said() {
    std::string all(2048, '\0');
    all.resize(static_cast<std::size_t>(::read(out_.get(), all.data(), all.size())));
    return all;
  }
  std::string pid() const { return std::to_string(pid_); }

 private:
  pid_t pid_ = 0;
  acc::UniqueFd out_;
};

TEST_CASE("a port that another program has is told at once, and no neighbour's is taken",
          "[bootstrap][store]") {
  const Stranger stranger;
  auto place = abstract_place();
  place.host = "127.0.0.1";
  place.ports = {stranger.port};
  const auto began = SteadyClock::now();
  CHECK_THROWS_WITH(open_tcp_store(place, in(20s)),
                    Catch::Contains("127.0.0.1:" + std::to_string(stranger.port)) &&
                        Catch::Contains("is no store of ours") &&
                        Catch::Contains("set MASTER_PORT to a port that is free"));
  CHECK(SteadyClock::now() - began < 5s);
}

TEST_CASE("of a job's own ports rank 0 takes the first that is free", "[bootstrap][store]") {
  const Stranger stranger;
  const std::uint16_t port = testing::free_port();
  auto place = abstract_place();
  place.host = "127.0.0.1";
  place.ports = {stranger.port, port};
  const auto server = open_tcp_store(place, in(10s));
  server->set("who", "rank 0");
  CHECK(open_tcp_store(as_rank(place, 1), in(10s))->get("who", in(10s)) == "rank 0");
}

TEST_CASE("the store of another job is no store of ours", "[bootstrap][store]") {
  const auto place = abstract_place();
  const auto server = open_tcp_store(place, in(10s));
  auto stranger = as_rank(place, 1);
  stranger.job = "another";
  CHECK_THROWS_WITH(open_tcp_store(stranger, in(1s)),
                    Catch::Contains("rank 0 of 2 has not joined") &&
                        Catch::Contains("it serves job 'a job', not 'another'"));
}

TEST_CASE("a second rank 0 of a job is refused at once, and the first is named",
          "[bootstrap][store]") {
  auto place = abstract_place();
  SECTION("by an abstract name") {}
  SECTION("by a port") {
    place.host = "127.0.0.1";
    place.ports = {testing::free_port()};
  }
  OtherProcess first{place};
  REQUIRE(first.said() == "in");
  const auto began = SteadyClock::now();
  try {
    (void)open_tcp_store(place, in(20s));
    FAIL("two of them");
  } catch (const Error& error) {
    CHECK(error.code() == ErrorCode::invalid_argument);
    CHECK(error.ranks() == std::vector{0});
    CHECK_THAT(error.what(), Catch::Contains("two processes are rank 0 of this job") &&
                                 Catch::Contains("pid " + first.pid() + " on host") &&
                                 Catch::Contains("MASTER_PORT of its own"));
  }
  CHECK(SteadyClock::now() - began < 5s);
  first.end();
  CHECK_NOTHROW(open_tcp_store(place, in(20s)));  // its place is free with its end
}

TEST_CASE("a rank that is given twice is refused while the first process lives",
          "[bootstrap][store]") {
  const auto place = abstract_place();
  const auto server = open_tcp_store(place, in(10s));
  OtherProcess first{as_rank(place, 1)};
  REQUIRE(first.said() == "in");
  OtherProcess second{as_rank(place, 1)};
  const auto said = second.said();
  CHECK_THAT(said, Catch::StartsWith("invalid_argument: two processes are rank 1 of this job") &&
                       Catch::Contains("pid " + second.pid()) &&
                       Catch::Contains("pid " + first.pid()));
  first.end();
  OtherProcess restarted{as_rank(place, 1)};
  CHECK(restarted.said() == "in");
}

TEST_CASE("a process keeps the store of its job for the groups to come", "[bootstrap][store]") {
  const auto place = abstract_place();
  job_store(place, in(10s))->set("first", "1");  // and not held
  CHECK(job_store(place, in(10s))->get("first", in(10s)) == "1");
  CHECK(open_tcp_store(as_rank(place, 1), in(10s))->get("first", in(10s)) == "1");
  // C++ and C may be two libraries in one process, each with a registry of its own.
  CHECK(open_tcp_store(place, in(10s))->get("first", in(10s)) == "1");
}

TEST_CASE("a store whose rank 0 ended isn't kept", "[bootstrap][store]") {
  const auto place = abstract_place();
  auto gone = std::make_unique<OtherProcess>(place);
  REQUIRE(gone->said() == "in");
  const auto old = job_store(as_rank(place, 1), in(10s));
  gone->end();
  OtherProcess next{place};
  REQUIRE(next.said() == "in");
  const auto fresh = job_store(as_rank(place, 1), in(10s));
  fresh->set("a", "b");
  CHECK(fresh != old);
}

TEST_CASE("rank 0 without descriptors says so to itself and to who comes", "[bootstrap][store]") {
  const auto place = abstract_place();
  const auto server = open_tcp_store(place, in(10s));
  std::promise<void> has_connection;
  auto waiting = std::async(std::launch::async, [&]() -> std::string {
    try {
      server->set("the get has its connection", "1");
      has_connection.set_value();
      return server->get("never", in(20s));
    } catch (const Error& error) {
      return std::string{to_string(error.code())} + ": " + error.what();
    }
  });
  has_connection.get_future().wait();
  // One for the connection of the client, which is the same process here.
  rlimit before{};
  ::getrlimit(RLIMIT_NOFILE, &before);
  std::vector<acc::UniqueFd> filling;
  rlimit low{128, before.rlim_max};
  REQUIRE(::setrlimit(RLIMIT_NOFILE, &low) == 0);
  for (int fd = ::open("/dev/null", O_RDONLY | O_CLOEXEC); fd >= 0;
       fd = ::open("/dev/null", O_RDONLY | O_CLOEXEC))
    filling.emplace_back(fd);
  REQUIRE_FALSE(filling.empty());
  filling.pop_back();
  const auto began = SteadyClock::now();
  const auto come = [&]() -> std::string {
    try {
      (void)open_tcp_store(as_rank(place, 1), in(20s));
      return "it got in";
    } catch (const Error& error) {
      return std::string{to_string(error.code())} + ": " + error.what();
    }
  };
  const auto said = come();
  // Each that comes ends the waits that the server knows of; the get may only be on its way to it.
  while (waiting.wait_for(0s) != std::future_status::ready && SteadyClock::now() - began < 5s)
    (void)come();
  filling.clear();
  ::setrlimit(RLIMIT_NOFILE, &before);
  CHECK_THAT(said, Catch::StartsWith("system: pid ") && Catch::Contains("can't take connections") &&
                       Catch::Contains("Too many open files"));
  CHECK_THAT(waiting.get(), Catch::StartsWith("system: the store of rank 0 can't take") &&
                                Catch::Contains("Too many open files"));
  CHECK(SteadyClock::now() - began < 5s);
  CHECK_NOTHROW(open_tcp_store(as_rank(place, 1), in(20s)));  // with room it goes on
}

TEST_CASE("without rank 0 the others say where they looked", "[bootstrap][store]") {
  const std::uint16_t port = testing::free_port();
  auto place = abstract_place(1, 3);
  place.host = "127.0.0.1";
  place.ports = {port};
  try {
    (void)open_tcp_store(place, in(50ms));
    FAIL("a store is there");
  } catch (const Error& error) {
    CHECK(error.code() == ErrorCode::timed_out);
    CHECK(error.ranks() == std::vector{0});
    CHECK_THAT(error.what(), Catch::Contains("no store at 127.0.0.1:" + std::to_string(port)) &&
                                 Catch::Contains("Connection refused"));
  }
}

TEST_CASE("a store at MASTER_ADDR=127.0.0.1 can't be reached from other hosts",
          "[bootstrap][store]") {
  // 127.0.0.2 stands for another address of this host: all of 127.0.0.0/8 is bound by "0.0.0.0".
  const auto port = testing::free_port();
  std::map<std::string, std::string> variables{
      {"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_PORT", std::to_string(port)}};
  const auto place_at = [&](const std::string& address) {
    variables["MASTER_ADDR"] = address;
    return place_of(
        read_launch_environment([&](std::string_view name) -> std::optional<std::string> {
          const auto found = variables.find(std::string{name});
          if (found == variables.end()) return std::nullopt;
          return found->second;
        }));
  };
  const auto is_reached_at = [&](const std::string& address) {
    return connect_to(*SocketAddress::numeric(address, port), in(5s)).has_value();
  };
  if (listen_at(*SocketAddress::numeric("::1", 0), 1)) {
    const auto place = place_at("::1");
    const auto server = open_tcp_store(place, in(10s));
    CHECK_FALSE(is_reached_at("127.0.0.1"));
    CHECK_NOTHROW(open_tcp_store(as_rank(place, 1), in(10s)));
  }
  for (const char* address : {"127.0.0.1", "localhost", "LocalHost."}) {
    CAPTURE(address);
    const auto place = place_at(address);
    const auto server = open_tcp_store(place, in(10s));
    CHECK_FALSE(is_reached_at("127.0.0.2"));
    CHECK_NOTHROW(open_tcp_store(as_rank(place, 1), in(10s)));
  }
  // A PyTorchJob says localhost in the master's pod, and the service's name in the others.
  variables["KUBERNETES_SERVICE_HOST"] = "10.0.0.1";
  const auto server = open_tcp_store(place_at("localhost"), in(10s));
  CHECK(is_reached_at("127.0.0.2"));
}

namespace {

std::vector<acc::UniqueFd> idle_connections(const TcpStorePlace& place, int count) {
  std::vector<acc::UniqueFd> idle;
  for (int i = 0; i < count; ++i) {
    auto fd = connect_to(SocketAddress::abstract(place.name), in(10s));
    REQUIRE(fd.has_value());
    idle.push_back(*std::move(fd));
  }
  return idle;
}

}  // namespace

// Idle connections are dropped after 10 s anyway: the ranks here have less time.
TEST_CASE("idle connections don't hold up a rank that joins", "[bootstrap][store]") {
  const auto place = abstract_place();  // takes 96 connections
  const auto server = open_tcp_store(place, in(10s));
  SECTION("that say nothing") {
    const auto idle = idle_connections(place, 200);
    CHECK_NOTHROW(open_tcp_store(as_rank(place, 1), in(4s)));
  }
  SECTION("that begin a greeting") {
    const auto idle = idle_connections(place, 200);
    const auto bytes = tcp_store::magic();
    for (const auto& fd : idle)  // some are dropped already
      (void)send_all(fd.get(), std::as_bytes(std::span{bytes}), in(10s));
    CHECK_NOTHROW(open_tcp_store(as_rank(place, 1), in(4s)));
  }
  SECTION("while a rank that is there keeps its connection") {
    const auto first = open_tcp_store(as_rank(place, 1), in(10s));
    const auto idle = idle_connections(place, 200);
    first->set("still", "here");
    CHECK(server->get("still", in(4s)) == "here");
  }
}

TEST_CASE("idle connections that take rank 0's last descriptors make room for a rank",
          "[bootstrap][store]") {
  auto place = abstract_place();
  place.size = 100;  // would take 1664 connections
  const auto server = open_tcp_store(place, in(10s));
  const auto idle = idle_connections(place, 20);
  server->set("an answer", "may come before they are accepted");
  server->set("the next one", "doesn't");
  rlimit before{};
  ::getrlimit(RLIMIT_NOFILE, &before);
  std::vector<acc::UniqueFd> filling;
  rlimit low{128, before.rlim_max};
  REQUIRE(::setrlimit(RLIMIT_NOFILE, &low) == 0);
  for (int fd = ::open("/dev/null", O_RDONLY | O_CLOEXEC); fd >= 0;
       fd = ::open("/dev/null", O_RDONLY | O_CLOEXEC))
    filling.emplace_back(fd);
  REQUIRE_FALSE(filling.empty());
  filling.pop_back();  // for the rank's own end of its connection
  std::string said = "it got in";
  try {
    (void)open_tcp_store(as_rank(place, 1), in(4s));
  } catch (const Error& error) {
    said = std::string{to_string(error.code())} + ": " + error.what();
  }
  filling.clear();
  ::setrlimit(RLIMIT_NOFILE, &before);
  CHECK(said == "it got in");
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
  const auto hello =
      tcp_store::magic() + tcp_store::framed(pack({"hello", "a job", "1", "here/1", "pid 1"}));
  CHECK_THAT(say(hello + tcp_store::framed(pack({"dance"}))), Catch::Contains("'dance'"));
  server->set("still", "well");
  CHECK(server->get("still", in(10s)) == "well");
}
