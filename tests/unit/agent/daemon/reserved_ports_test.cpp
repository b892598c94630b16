#include "agent/daemon/reserved_ports.hpp"

#include "common/unique_fd.hpp"

#include <catch2/catch.hpp>

#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

#include <vector>

using namespace acc::agent::daemon;
using acc::UniqueFd;
using Kind = RequestKind;

TEST_CASE("streams of root's left it no port below 1024 for a stop") {
  if (::geteuid() != 0) return;  // such ports are root's
  ReservedPorts ports;
  std::vector<ReservedPorts::Share> streams;
  for (int i = 0; i < 20; ++i) {
    if (auto share = ports.take(Kind::stream)) streams.push_back(std::move(share));
  }
  CHECK(streams.size() == 8);
  std::vector<ReservedPorts::Share> requests;
  for (int i = 0; i < 20; ++i) {
    if (auto share = ports.take(Kind::brief)) requests.push_back(std::move(share));
  }
  CHECK(requests.size() == 8);
  CHECK(!ports.take(Kind::brief));
  streams.pop_back();
  CHECK(ports.take(Kind::stream));
}

TEST_CASE("a share of the ports below 1024 may outlive the dials") {
  ReservedPorts::Share held;
  {
    ReservedPorts ports;
    held = ports.take(Kind::brief);
  }
  held.reset();
}

TEST_CASE("an address is crowded once it was noted, and others are not") {
  ReservedPorts ports;
  CHECK(!ports.is_crowded("b:29610"));
  ports.note_crowded("b:29610");
  CHECK(ports.is_crowded("b:29610"));
  CHECK(!ports.is_crowded("c:29610"));
}

TEST_CASE("a reserved port lies between 665 and 1023") {
  if (::geteuid() != 0) return;
  const UniqueFd fd{::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
  REQUIRE_FALSE(bind_reserved_port(fd.get(), false));
  sockaddr_in at{};
  socklen_t size = sizeof at;
  REQUIRE(::getsockname(fd.get(), reinterpret_cast<sockaddr*>(&at), &size) == 0);
  CHECK(ntohs(at.sin_port) >= 665);
  CHECK(ntohs(at.sin_port) < 1024);
}
