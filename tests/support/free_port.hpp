#pragma once

#include "common/unique_fd.hpp"
#include "runtime/net/sockets.hpp"

#include <catch2/catch.hpp>

#include <cstdint>

namespace acc::runtime::testing {

/// A listener on loopback that takes `port`.
inline UniqueFd occupied_port(std::uint16_t& port) {
  auto listener = listen_at(*SocketAddress::numeric("127.0.0.1", 0), 8);
  REQUIRE(listener.has_value());
  port = local_address(listener->get()).port();
  return *std::move(listener);
}

inline std::uint16_t free_port() {
  std::uint16_t port = 0;
  const auto held = occupied_port(port);
  return port;
}

}  // namespace acc::runtime::testing
