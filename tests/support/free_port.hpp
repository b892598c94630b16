#pragma once

#include "common/unique_fd.hpp"
#include "runtime/net/sockets.hpp"

#include <catch2/catch.hpp>

#include <unistd.h>

#include <cstdint>

namespace acc::runtime::testing {

/// A listener on loopback that takes `port`.
inline UniqueFd occupied_port(std::uint16_t& port) {
  auto listener = listen_at(*SocketAddress::numeric("127.0.0.1", 0), 8);
  REQUIRE(listener.has_value());
  port = local_address(listener->get()).port();
  return *std::move(listener);
}

/// A port of loopback that is free now. Below those that the kernel hands out, and another one in
/// each process: two tests that ran at a time were given the same.
inline std::uint16_t free_port() {
  constexpr std::uint32_t kFirst = 12'000, kCount = 20'000, kOfProcess = 8;
  static std::uint32_t calls = 0;
  for (;;) {
    const auto number = static_cast<std::uint32_t>(::getpid()) * kOfProcess + calls++;
    const auto port = static_cast<std::uint16_t>(kFirst + number % kCount);
    if (listen_at(*SocketAddress::numeric("127.0.0.1", port), 8).has_value()) return port;
  }
}

}  // namespace acc::runtime::testing
