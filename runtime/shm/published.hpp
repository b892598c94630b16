#pragma once

#include "runtime/backend.hpp"

#include <array>
#include <atomic>
#include <bit>
#include <chrono>
#include <cstdint>
#include <ctime>
#include <optional>

/// What a rank publishes in shared memory only for the error messages of others. Valid when zeroed.
namespace acc::runtime::shm {

/// A clock that all processes of a node share; it lags up to 10 ms and costs a few nanoseconds.
[[nodiscard]] inline std::int64_t coarse_clock_ns() noexcept {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
  return now.tv_sec * std::int64_t{1'000'000'000} + now.tv_nsec;
}

[[nodiscard]] constexpr bool is_message(Operation operation) noexcept {
  return operation == Operation::send || operation == Operation::recv;
}

/// The call in which a rank waits for others.
struct Wait {
  Operation operation = Operation::none;  ///< none: it doesn't wait
  std::uint32_t of = 0;                   ///< send, recv: the other rank; else number of the call
};

/// A Wait with the time when it began.
class PublishedWait {
 public:
  void begin(const Wait& wait) noexcept {
    word_.store(static_cast<std::uint64_t>(wait.operation) << 56 | now_ms() << 32 | wait.of);
  }
  void end() noexcept { word_.store(0); }
  /// The wait, if it has lasted for kLastingMs. Two ranks that exchange messages wait for each
  /// other again and again for an instant; one that has waited so long waits in fact, and what is
  /// found of several ranks one after the other holds for all of them at once.
  [[nodiscard]] Wait lasting() const noexcept {
    const auto word = word_.load();
    const auto since = word >> 32 & kTimeMask;
    if (((now_ms() - since) & kTimeMask) < kLastingMs) return {};
    return {static_cast<Operation>(word >> 56), static_cast<std::uint32_t>(word)};
  }

 private:
  static constexpr std::uint64_t kTimeMask = (1 << 24) - 1;
  static constexpr std::uint64_t kLastingMs = 30;
  static std::uint64_t now_ms() noexcept {
    return static_cast<std::uint64_t>(coarse_clock_ns() / 1'000'000) & kTimeMask;
  }
  std::atomic<std::uint64_t> word_;
};

/// The last message that a rank has sent, or received. Written by one thread at a time, read by any
/// process.
class LastMessage {
 public:
  struct Message {
    Descriptor what;
    int peer = -1;
  };
  void set(const Descriptor& what, int peer) noexcept {
    const auto number = count_.load(std::memory_order_relaxed);
    Slot& slot = slots_[number % 2];
    const auto words = std::bit_cast<Words>(what);
    // Each store releases, so that who reads one of a later message finds a later count.
    for (std::size_t i = 0; i < words.size(); ++i)
      slot.what[i].store(words[i], std::memory_order_release);
    slot.peer.store(peer, std::memory_order_release);
    count_.store(number + 1, std::memory_order_release);
  }
  /// nothing: none yet, or the rank completes messages too fast to read one.
  [[nodiscard]] std::optional<Message> get() const noexcept {
    constexpr int kTries = 100;
    for (int i = 0; i < kTries; ++i) {
      const auto number = count_.load(std::memory_order_acquire);
      if (number == 0) return std::nullopt;
      const Slot& slot = slots_[(number - 1) % 2];
      Words words{};
      for (std::size_t w = 0; w < words.size(); ++w)
        words[w] = slot.what[w].load(std::memory_order_acquire);
      const int peer = slot.peer.load(std::memory_order_acquire);
      if (count_.load(std::memory_order_acquire) == number)
        return Message{std::bit_cast<Descriptor>(words), peer};
    }
    return std::nullopt;
  }

 private:
  using Words = std::array<std::uint64_t, sizeof(Descriptor) / sizeof(std::uint64_t)>;
  struct Slot {
    std::array<std::atomic<std::uint64_t>, std::tuple_size_v<Words>> what;
    std::atomic<int> peer;
  };
  std::atomic<std::uint32_t> count_;
  std::array<Slot, 2> slots_;  ///< alternating: the last is unchanged while the next is written
};

}  // namespace acc::runtime::shm
