#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

/// How a rank waits for another on the same node: a few pauses, some yields, then sleep. Measured:
/// a signal between two cores takes 0.1 µs to one that spins and 20 µs to one that sleeps; but two
/// that spin on one core, as happens when a third process is busy, cost each other whole slices.
namespace acc::runtime::shm {

/// A count in shared memory that one rank raises and others wait for. All zeroes is a valid one.
/// It goes up in steps of 16: the low bits are for `poke`, which must change the number, or a
/// waiter that is just about to sleep on the old one would sleep through it.
struct Word {
  std::atomic<std::uint32_t> count;
  std::atomic<std::uint32_t> sleepers;
};
inline constexpr std::uint32_t kStep = 16;

/// Counts go round: only their distance says which is later.
[[nodiscard]] constexpr bool reached(std::uint32_t count, std::uint32_t target) noexcept {
  return static_cast<std::int32_t>(count - target) >= 0;
}
[[nodiscard]] inline bool reached(const Word& word, std::uint32_t target) noexcept {
  return reached(word.count.load(std::memory_order_acquire), target);
}

void wake(Word& word) noexcept;
/// By its owner alone. A system call only if somebody sleeps.
inline void post(Word& word, std::uint32_t count) noexcept {
  word.count.store(count, std::memory_order_seq_cst);
  if (word.sleepers.load(std::memory_order_seq_cst) != 0) wake(word);
}
/// Wakes who sleeps on it, without raising it, so that they look round.
void poke(Word& word) noexcept;
/// Sleeps while the count is `seen`, at most for `limit`.
void sleep_on(Word& word, std::uint32_t seen, std::chrono::nanoseconds limit) noexcept;

/// How long to be patient before sleeping.
struct Patience {
  int pauses = 0;  ///< of the processor: a hundred are about a microsecond
  int yields = 50;
};
/// With more ranks than cores a pause only keeps another rank from its core.
[[nodiscard]] Patience patience(int ranks, int cores) noexcept;

/// Whole cores that the control group lets this process use at once; a large number: no limit.
[[nodiscard]] int quota_cores() noexcept;

}  // namespace acc::runtime::shm
