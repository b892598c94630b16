#include "agent/daemon/reserved_ports.hpp"

#include "common/unique_fd.hpp"

#include <catch2/catch.hpp>

#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <vector>

using namespace acc::agent::daemon;
using acc::UniqueFd;
using Kind = RequestKind;

namespace {

/// From a port that is free, which is chosen by chance: other programs have some. None: this
/// process may use no such port (errno is EACCES), or all that were tried are in use.
UniqueFd bound_socket() {
  for (int i = 0; i < 100; ++i) {
    UniqueFd fd{::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
    const auto failed = bind_reserved_port(fd.get(), false);
    if (!failed) return fd;
    errno = failed.value();
    if (errno != EADDRINUSE) break;
  }
  return UniqueFd{};
}

/// Not root in a container without CAP_NET_BIND_SERVICE.
bool has_reserved_ports() { return ::geteuid() == 0 && (bound_socket() || errno != EACCES); }

}  // namespace

TEST_CASE("streams of root's left it no port below 1024 for a stop") {
  if (!has_reserved_ports()) return;  // such ports are root's
  ReservedPorts ports;
  std::vector<ReservedPorts::Share> streams;
  for (int i = 0; i < 20; ++i) {
    if (auto share = ports.take(Kind::stream)) streams.push_back(std::move(share));
  }
  CHECK(streams.size() == 8);
  CHECK(!ports.has_free(Kind::stream));
  CHECK(ports.has_free(Kind::brief));
  std::vector<ReservedPorts::Share> requests;
  for (int i = 0; i < 20; ++i) {
    if (auto share = ports.take(Kind::brief)) requests.push_back(std::move(share));
  }
  CHECK(requests.size() == 8);
  CHECK(!ports.take(Kind::brief));
  CHECK(!ports.has_free(Kind::brief));
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
  if (!has_reserved_ports()) return;
  const auto fd = bound_socket();
  REQUIRE(fd);
  sockaddr_in at{};
  socklen_t size = sizeof at;
  REQUIRE(::getsockname(fd.get(), reinterpret_cast<sockaddr*>(&at), &size) == 0);
  CHECK(ntohs(at.sin_port) >= 665);
  CHECK(ntohs(at.sin_port) < 1024);
}
