#pragma once

#include "tests/support/tally.hpp"

#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <ctime>

/// How a thread waits that looks and sleeps by turns. Defines nanosleep(), behind
/// std::this_thread::sleep_for, for the whole program: include it in one source file.
namespace acc::testing {

/// While it lives, the sleeps of this thread are counted.
class CountedSleeps {
 public:
  explicit CountedSleeps(Tally& count) : count_{count} { of_this_thread() = this; }
  ~CountedSleeps() { of_this_thread() = nullptr; }
  CountedSleeps(const CountedSleeps&) = delete;
  CountedSleeps& operator=(const CountedSleeps&) = delete;

  /// As it was asked for; the machine may take longer.
  [[nodiscard]] std::chrono::nanoseconds longest() const { return longest_; }

  void note(std::chrono::nanoseconds wanted) {
    longest_ = std::max(longest_, wanted);
    count_.add();
  }
  static CountedSleeps*& of_this_thread() {
    static thread_local CountedSleeps* current = nullptr;
    return current;
  }

 private:
  Tally& count_;
  std::chrono::nanoseconds longest_{0};
};

}  // namespace acc::testing

extern "C" int nanosleep(const timespec* wanted, timespec* left) {
  if (auto* const counted = acc::testing::CountedSleeps::of_this_thread())
    counted->note(std::chrono::seconds{wanted->tv_sec} + std::chrono::nanoseconds{wanted->tv_nsec});
  return static_cast<int>(::syscall(SYS_nanosleep, wanted, left));
}
