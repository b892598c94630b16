#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <stdexcept>
#include <string>

namespace acc::testing {

/// A count that threads of a test raise and wait for, in place of sleeps.
class Tally {
 public:
  void add() {
    const std::lock_guard lock{mutex_};
    ++count_;
    changed_.notify_all();
  }
  [[nodiscard]] int count() const {
    const std::lock_guard lock{mutex_};
    return count_;
  }
  /// @throws std::runtime_error  a test that hangs ends before ctest ends it, and says where
  void await(int count) {
    constexpr std::chrono::seconds kLimit{45};
    std::unique_lock lock{mutex_};
    if (!changed_.wait_for(lock, kLimit, [&] { return count_ >= count; }))
      throw std::runtime_error{"waited 45 s for " + std::to_string(count) + " threads, of which " +
                               std::to_string(count_) + " came"};
  }
  /// @return whether it is reached within `limit`, where another outcome is as good.
  [[nodiscard]] bool reaches(int count, std::chrono::milliseconds limit) {
    std::unique_lock lock{mutex_};
    return changed_.wait_for(lock, limit, [&] { return count_ >= count; });
  }

 private:
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  int count_ = 0;
};

/// Counts in its tally when the scope ends, also by an exception.
class TallyAtEnd {
 public:
  explicit TallyAtEnd(Tally& tally) : tally_{tally} {}
  ~TallyAtEnd() { tally_.add(); }
  TallyAtEnd(const TallyAtEnd&) = delete;
  TallyAtEnd& operator=(const TallyAtEnd&) = delete;

 private:
  Tally& tally_;
};

}  // namespace acc::testing
