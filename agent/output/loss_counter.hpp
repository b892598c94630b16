#pragma once

#include "common/duration.hpp"

#include <cstdint>
#include <mutex>
#include <utility>

namespace acc::agent {

/// What a queue of output has lost so far. Any thread.
class LossCounter {
 public:
  struct Count {
    std::uint64_t bytes = 0;
    std::uint64_t lines = 0;
    Instant since{};  ///< of the first loss
    int error = 0;    ///< errno of the last refused write; 0: the destination was too slow
  };

  void add(std::uint64_t bytes, std::uint64_t lines, int error) {
    const std::lock_guard guard{mutex_};
    if (lost_.bytes == 0) lost_.since = clock_now();
    lost_.bytes += bytes;
    lost_.lines += lines;
    if (error != 0) lost_.error = error;
  }
  [[nodiscard]] Count count() const {
    const std::lock_guard guard{mutex_};
    return lost_;
  }
  /// The bytes and lines lost since the last call; error: as count().
  Count take_new() {
    const std::lock_guard guard{mutex_};
    const Count before = std::exchange(taken_, lost_);
    return {lost_.bytes - before.bytes, lost_.lines - before.lines, lost_.since, lost_.error};
  }

 private:
  mutable std::mutex mutex_;
  Count lost_;
  Count taken_;
};

}  // namespace acc::agent
