#include "runtime/tcp/listener.hpp"

#include "runtime/tcp/mesh.hpp"

#include <catch2/catch.hpp>

#include <netinet/in.h>
#include <netinet/tcp.h>

#include <chrono>
#include <string>
#include <vector>

using namespace acc::runtime;
using namespace acc::runtime::tcp;
using namespace std::chrono_literals;

namespace {

const std::string kToken = "0123456789abcdef0123456789abcdef";

Deadline in_a_while() { return std::chrono::steady_clock::now() + 20s; }

Listener listening() {
  auto fd = listen_at(*SocketAddress::numeric("127.0.0.1", 0), 1024);
  REQUIRE(fd.has_value());
  return {*std::move(fd), kToken, 4};
}

acc::UniqueFd connected_to(const Listener& listener) {
  auto fd = connect_to(listener.address(), in_a_while());
  REQUIRE(fd.has_value());
  return *std::move(fd);
}

acc::UniqueFd connected_to(const Listener& listener, const Hello& hello) {
  auto fd = connected_to(listener);
  REQUIRE(send_all(fd.get(), std::as_bytes(std::span{&hello, 1}), in_a_while()).has_value());
  return fd;
}

/// The next that identifies itself. @return rank -1: none did in time
Incoming next_of(Listener& listener, std::chrono::milliseconds limit = 20s) {
  const auto until = std::chrono::steady_clock::now() + limit;
  std::vector<pollfd> waits;
  for (;;) {
    auto incoming = listener.next();
    REQUIRE(incoming.has_value());
    if (*incoming) return **std::move(incoming);
    if (std::chrono::steady_clock::now() >= until) return {{}, -1, {}};
    waits.clear();
    listener.add_waits(waits);
    ::poll(waits.data(), waits.size(), poll_time(until));
  }
}

/// Was it closed by the other side?
bool is_closed(const acc::UniqueFd& fd) {
  std::byte byte{};
  const auto got = receive_all(fd.get(), std::span{&byte, 1}, in_a_while());
  return !got && got.error().code != acc::Errc::timed_out;
}

}  // namespace

TEST_CASE("a rank is accepted at once behind connections that stay silent", "[tcp]") {
  auto listener = listening();
  std::vector<acc::UniqueFd> silent;
  for (int i = 0; i < 40; ++i) silent.push_back(connected_to(listener));
  const auto began = std::chrono::steady_clock::now();
  const auto rank = connected_to(listener, {Purpose::control, 3, 0, kToken});
  const auto incoming = next_of(listener);
  CHECK(incoming.from == 3);
  CHECK(incoming.purpose == Purpose::control);
  // One after the other, 2 s each, they would take 80.
  CHECK(std::chrono::steady_clock::now() - began < 20s);
}

TEST_CASE("a rank that sends its greeting in parts is accepted", "[tcp]") {
  auto listener = listening();
  const auto fd = connected_to(listener);
  const Hello hello{Purpose::message, 2, 0, kToken};
  const auto bytes = std::as_bytes(std::span{&hello, 1});
  REQUIRE(send_all(fd.get(), bytes.first(5), in_a_while()).has_value());
  const auto other = connected_to(listener, {Purpose::message, 1, 0, kToken});
  CHECK(next_of(listener).from == 1);
  REQUIRE(send_all(fd.get(), bytes.subspan(5), in_a_while()).has_value());
  CHECK(next_of(listener).from == 2);
}

TEST_CASE("connections that are none of the group's are closed", "[tcp]") {
  auto listener = listening();
  Hello other_protocol{Purpose::rail, 1, 0, kToken};
  other_protocol.magic = 0x20544547;
  std::vector<acc::UniqueFd> refused;
  refused.push_back(connected_to(listener, {Purpose::rail, 1, 0, std::string(32, 'x')}));
  refused.push_back(connected_to(listener, {Purpose::rail, 4, 0, kToken}));
  refused.push_back(connected_to(listener, {Purpose::rail, -1, 0, kToken}));
  refused.push_back(connected_to(listener, other_protocol));
  const auto rank = connected_to(listener, {Purpose::rail, 1, 0, kToken});
  CHECK(next_of(listener).from == 1);
  for (const auto& fd : refused) CHECK(is_closed(fd));
}

TEST_CASE("more silent connections than the limit close the oldest", "[tcp]") {
  auto listener = listening();
  std::vector<acc::UniqueFd> silent;
  for (std::size_t i = 0; i < Listener::kMostUnidentified + 3; ++i)
    silent.push_back(connected_to(listener));
  const auto rank = connected_to(listener, {Purpose::rail, 1, 0, kToken});
  CHECK(next_of(listener).from == 1);
  for (int i = 0; i < 3; ++i) CHECK(is_closed(silent[static_cast<std::size_t>(i)]));
}

// The kernel counts the time of a closed window, though each probe of it is acknowledged
// (TCP_USER_TIMEOUT in tcp(7)).
TEST_CASE("a peer that was busy for 20 s while it was sent much was taken for lost", "[tcp]") {
  auto listener = listening();
  const auto fd = connected_to(listener);
  const Mesh mesh{std::move(listener), {}, kToken, "system", {}, {}};
  const auto limit_of = [&](Purpose purpose) {
    const unsigned none = 0;
    ::setsockopt(fd.get(), IPPROTO_TCP, TCP_USER_TIMEOUT, &none, sizeof none);
    set_options(fd.get(), mesh, purpose);
    unsigned limit = 0;
    socklen_t size = sizeof limit;
    REQUIRE(::getsockopt(fd.get(), IPPROTO_TCP, TCP_USER_TIMEOUT, &limit, &size) == 0);
    return limit;
  };
  CHECK(limit_of(Purpose::rail) == 0);
  CHECK(limit_of(Purpose::message) == 0);
  CHECK(limit_of(Purpose::control) == 20'000);
}
