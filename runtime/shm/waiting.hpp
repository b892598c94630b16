#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

/// Waiting for another rank on the same node: a few pauses, some yields, then sleep. Measured: a
/// signal between two cores takes 0.1 µs to a spinning rank and 20 µs to a sleeping one; but two
/// that spin on one core, as when a third process is busy, cost each other whole time slices.
namespace acc::runtime::shm {

/// A count in shared memory that one rank raises and others wait for; zeroed memory is a valid one.
/// It increases in steps of 16: the low bits are for `poke`, which must change the number, else a
/// waiter about to sleep on the old one would miss it.
struct Word {
  std::atomic<std::uint32_t> count;
  std::atomic<std::uint32_t> sleepers;
};
inline constexpr std::uint32_t kStep = 16;

/// Counts wrap around: only their distance says which is later.
[[nodiscard]] constexpr bool reached(std::uint32_t count, std::uint32_t target) noexcept {
  return static_cast<std::int32_t>(count - target) >= 0;
}
[[nodiscard]] inline bool reached(const Word& word, std::uint32_t target) noexcept {
  return reached(word.count.load(std::memory_order_acquire), target);
}

void wake(Word& word) noexcept;
/// By its owner only. Makes a system call only if a rank sleeps.
inline void post(Word& word, std::uint32_t count) noexcept {
  word.count.store(count, std::memory_order_seq_cst);
  if (word.sleepers.load(std::memory_order_seq_cst) != 0) wake(word);
}
/// Wakes its sleepers without raising it, so that they check the state of the group.
void poke(Word& word) noexcept;
/// Sleeps while the count is `seen`, at most for `limit`.
void sleep_on(Word& word, std::uint32_t seen, std::chrono::nanoseconds limit) noexcept;

/// How long to spin before sleeping.
struct SpinPolicy {
  int pauses = 0;  ///< pause instructions: a hundred take about a microsecond
  int yields = 50;
};
/// With more ranks than cores there are no pauses: they would only keep another rank from its core.
[[nodiscard]] SpinPolicy spin_policy(int ranks, int cores) noexcept;

/// Cores, rounded down, that the control group allows this process; a large number: no limit.
[[nodiscard]] int quota_cores() noexcept;

}  // namespace acc::runtime::shm
