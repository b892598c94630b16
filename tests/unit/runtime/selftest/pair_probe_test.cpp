#include "runtime/selftest/pair_probe.hpp"

#include <catch2/catch.hpp>

#include <netinet/in.h>
#include <sys/socket.h>

#include <thread>

namespace acc::selftest {
namespace {

using runtime::SocketAddress;

const std::string kToken(32, 't');
constexpr ProbeTimes kShort{runtime::Millis{2000}, runtime::Millis{20}, runtime::Millis{50}};

UniqueFd listening() {
  auto fd = runtime::listen_at(*SocketAddress::numeric("127.0.0.1", 0), 16);
  REQUIRE(fd.has_value());
  return std::move(*fd);
}

struct Both {
  ProbeResult low, high;
};
/// Two nodes, of which the lower one may begin later; an address that leads elsewhere: connections
/// to that node fail.
Both probed(const UniqueFd& low, const UniqueFd& high, const SocketAddress& to_low,
            const SocketAddress& to_high, const ProbeTimes& times = kShort,
            runtime::Millis later = {}) {
  Both both;
  std::thread other{[&] { both.high = probe_pair(high, kToken, {3, 1, 0, to_low}, times); }};
  std::this_thread::sleep_for(later);
  both.low = probe_pair(low, kToken, {3, 0, 1, to_high}, times);
  other.join();
  return both;
}

SocketAddress address_of(const UniqueFd& listener) {
  return runtime::local_address(listener.get());
}

/// Where nobody listens, as the port is taken and nothing else.
struct Nowhere {
  UniqueFd bound{::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
  SocketAddress address;

  Nowhere() {
    sockaddr_in any{};
    any.sin_family = AF_INET;
    any.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    REQUIRE(::bind(bound.get(), reinterpret_cast<const sockaddr*>(&any), sizeof any) == 0);
    address = runtime::local_address(bound.get());
  }
};

}  // namespace

TEST_CASE("two nodes that reach each other learn time and bandwidth", "[selftest][network]") {
  const auto low = listening();
  const auto high = listening();
  const auto both = probed(low, high, address_of(low), address_of(high));
  CAPTURE(both.low.failure, both.low.refused, both.high.refused);
  CHECK(both.low.refused.empty());
  CHECK(both.high.refused.empty());
  CHECK(both.low.failure.empty());
  CHECK(both.high.failure.empty());
  CHECK(both.low.rtt_us > 0);
  CHECK(both.low.mbit_to_high > 1);
  CHECK(both.low.mbit_to_low > 1);
}

TEST_CASE("a pair of which one can open connections is measured all the same",
          "[selftest][network]") {
  const auto low = listening();
  const auto high = listening();
  const Nowhere nowhere;
  ProbeTimes times = kShort;
  times.limit = runtime::Millis{700};
  // The lower one waits for the connection that doesn't come; the higher one waits for it,
  // whichever of them began first.
  const auto later = GENERATE(runtime::Millis{0}, runtime::Millis{150});
  {
    const auto both = probed(low, high, nowhere.address, address_of(high), times, later);
    CHECK(both.low.refused.empty());
    CHECK(both.high.refused.find("refused") != std::string::npos);
    CHECK(both.low.failure.empty());
    CHECK(both.low.mbit_to_low > 0);
  }
  {
    const auto both = probed(low, high, address_of(low), nowhere.address, times, later);
    CHECK(both.high.refused.empty());
    CHECK(both.low.refused.find("refused") != std::string::npos);
    CHECK(both.low.failure.empty());
    CHECK(both.low.mbit_to_high > 0);
  }
}

TEST_CASE("a pair without any connection is told by both, in time", "[selftest][network]") {
  const auto low = listening();
  const auto high = listening();
  const Nowhere nowhere;
  ProbeTimes times = kShort;
  times.limit = runtime::Millis{300};
  const auto both = probed(low, high, nowhere.address, nowhere.address, times);
  CHECK(both.low.refused.find("refused") != std::string::npos);
  CHECK(both.high.refused.find("refused") != std::string::npos);
}

TEST_CASE("strangers and connections of an earlier round don't count", "[selftest][network]") {
  const auto low = listening();
  const auto high = listening();
  const auto connect = [&](const UniqueFd& to) {
    auto fd = runtime::connect_to(address_of(to), std::chrono::steady_clock::now() + kShort.limit);
    REQUIRE(fd.has_value());
    return std::move(*fd);
  };
  const auto silent = connect(low);
  const auto loud = connect(low);
  const std::string garbage(48, 'x');
  REQUIRE(runtime::send_all(loud.get(), runtime::bytes_of(garbage),
                            std::chrono::steady_clock::now() + kShort.limit)
              .has_value());
  const auto both = probed(low, high, address_of(low), address_of(high));
  CHECK(both.low.failure.empty());
  CHECK(both.low.mbit_to_high > 1);
}

}  // namespace acc::selftest
