#pragma once

#include "runtime/bootstrap/fields.hpp"
#include "runtime/bootstrap/sockets.hpp"

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

/// What client and server of the tcp store say: frames of a length (u32, this machine's order of
/// bytes: a job's hosts are of one kind, the greeting's magic tells if not) and packed fields.
namespace acc::runtime::tcp_store {

inline constexpr std::uint32_t kMagic = 0xacc57032;    ///< version 2
inline constexpr std::size_t kMaxGreeting = 4 * 1024;  ///< bytes of a frame from a stranger
inline constexpr std::size_t kMaxFrame = 64 << 20;     ///< bytes
inline constexpr std::size_t kMaxStored = 256 << 20;   ///< bytes of keys and values together
inline constexpr auto kGreetingTime = std::chrono::seconds{10};

// Greeting: magic (u32), then a frame {"hello", job, rank, process, who}; answer: magic and
// {"welcome"} or {"refused", kind, why} with one of these kinds:
inline constexpr const char* kOtherJob = "job";    ///< this store is another job's
inline constexpr const char* kRankTaken = "rank";  ///< a living process is that rank
inline constexpr const char* kExhausted = "full";  ///< rank 0 has no descriptor left
// Then questions with one answer each:
//   {"set", key, value} {"ok"} · {"get", key} {"value", bytes}, when it comes · {"peek", key}
//   {"value", bytes} or {"missing"} · {"add", key, delta} {"number", sum} · any: {"error", why}, or
//   {"failed", why} where the server can't go on

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
