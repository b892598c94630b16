#pragma once

#include "runtime/net/fields.hpp"
#include "runtime/net/sockets.hpp"

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

/// The protocol of the TCP store: frames of a length (u32 in host byte order: a mixed-endian job is
/// refused by the magic number) and packed fields.
namespace acc::runtime::tcp_store {

inline constexpr std::uint32_t kMagic = 0xacc57032;  ///< version 2
inline constexpr std::size_t kMaxGreeting =
    4 * 1024;  ///< bytes of a frame before the greeting is accepted
inline constexpr std::size_t kMaxFrame = 64 << 20;    ///< bytes
inline constexpr std::size_t kMaxStored = 256 << 20;  ///< bytes of keys and values together
inline constexpr auto kGreetingTime = std::chrono::seconds{10};

// Greeting: magic (u32), then a frame {"hello", job, rank, process, who}; answer: magic and
// {"welcome"} or {"refused", kind, why} with one of these kinds:
inline constexpr const char* kOtherJob = "job";    ///< the store belongs to another job
inline constexpr const char* kRankTaken = "rank";  ///< a live process has that rank
inline constexpr const char* kExhausted = "full";  ///< rank 0 has no descriptor left
// Then requests with one answer each: {"set", key, value} {"ok"} · {"get", key} {"value", bytes},
// once it is set · {"peek", key} {"value", bytes} or {"missing"} · {"add", key, delta} {"number",
// sum} · {"remove", key} {"ok"}, also without one · any: {"error", why}, or {"failed", why} if the server can't continue

/// `frame`, ready to be sent.
[[nodiscard]] inline std::string framed(std::string_view frame) {
  const auto size = static_cast<std::uint32_t>(frame.size());
  std::string bytes(sizeof size, '\0');
  std::memcpy(bytes.data(), &size, sizeof size);
  return bytes.append(frame);
}

[[nodiscard]] inline std::string magic() {
  std::string bytes(sizeof kMagic, '\0');
  std::memcpy(bytes.data(), &kMagic, sizeof kMagic);
  return bytes;
}

}  // namespace acc::runtime::tcp_store
