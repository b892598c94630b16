#pragma once

#include "runtime/shm/published.hpp"
#include "tests/support/tally.hpp"

#include <sys/syscall.h>
#include <unistd.h>

#include <chrono>
#include <thread>

/// A busy machine for chosen threads. Defines sched_yield() for the whole program: include it in
/// one source file.
namespace acc::testing {

/// While it lives, each yield of this thread takes as long as one to a program that computes, which
/// keeps the core for its slice; and is counted. It lasts until the coarse clock has moved, too, as
/// the waits read that one: it stands still for longer than a slice where ticks come late.
class SlowYields {
 public:
  explicit SlowYields(Tally& count) { counter() = &count; }
  ~SlowYields() { counter() = nullptr; }
  SlowYields(const SlowYields&) = delete;
  SlowYields& operator=(const SlowYields&) = delete;

  static Tally*& counter() {
    static thread_local Tally* of_this_thread = nullptr;
    return of_this_thread;
  }
};

}  // namespace acc::testing

extern "C" int sched_yield() noexcept {
  auto* const count = acc::testing::SlowYields::counter();
  if (count == nullptr) return static_cast<int>(::syscall(SYS_sched_yield));
  count->add();
  const auto tick = acc::runtime::shm::coarse_clock_ns();
  do {
    std::this_thread::sleep_for(std::chrono::milliseconds{5});
  } while (acc::runtime::shm::coarse_clock_ns() == tick);
  return 0;
}
