#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

namespace acc::runtime {

/// Counts the forks that led to this process: differs between parent and child. Costs one load.
[[nodiscard]] std::uint64_t fork_generation() noexcept;

/// The only `T` of this process, made on first use. Never destroyed: groups may outlive statics. A
/// forked process makes a new one: it lacks the threads of the old one, whose lock may be held for
/// ever.
template <class T>
[[nodiscard]] T& only_of_process() {
  struct Made {
    T value{};
    const std::uint64_t in = fork_generation();
  };
  static std::atomic<Made*> newest{nullptr};
  Made* current = newest.load(std::memory_order_acquire);
  while (current == nullptr || current->in != fork_generation()) {
    auto fresh = std::make_unique<Made>();
    if (newest.compare_exchange_strong(current, fresh.get(), std::memory_order_acq_rel))
      return fresh.release()->value;
  }
  return current->value;
}

}  // namespace acc::runtime
