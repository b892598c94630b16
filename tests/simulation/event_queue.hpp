#pragma once

#include "tests/simulation/clock.hpp"

#include <cstdint>
#include <functional>
#include <queue>
#include <vector>

namespace acc::simulation {

/// Virtual time; events of the same time happen in the order in which they were planned.
class EventQueue {
 public:
  using Call = std::function<void()>;

  [[nodiscard]] Time now() const { return now_; }
  /// Times in the past mean now.
  void at(Time when, Call call) {
    if (when == kNever) return;
    std::uint32_t slot = 0;
    if (free_.empty()) {
      slot = static_cast<std::uint32_t>(calls_.size());
      calls_.push_back(std::move(call));
    } else {
      slot = free_.back();
      free_.pop_back();
      calls_[slot] = std::move(call);
    }
    heap_.push({when < now_ ? now_ : when, sequence_++, slot});
  }
  void after(Time delay, Call call) { at(now_ + delay, std::move(call)); }

  [[nodiscard]] Time next() const { return heap_.empty() ? kNever : heap_.top().at; }
  [[nodiscard]] std::uint64_t happened() const { return happened_; }
  /// Runs the next event; there must be one.
  void step() {
    const Entry entry = heap_.top();
    heap_.pop();
    now_ = entry.at;
    ++happened_;
    const Call call = std::move(calls_[entry.slot]);
    calls_[entry.slot] = nullptr;
    free_.push_back(entry.slot);
    call();
  }

 private:
  struct Entry {
    Time at;
    std::uint64_t sequence;
    std::uint32_t slot;
    bool operator<(const Entry& other) const {
      return at != other.at ? at > other.at : sequence > other.sequence;
    }
  };
  Time now_{0};
  std::uint64_t sequence_ = 0;
  std::uint64_t happened_ = 0;
  std::priority_queue<Entry> heap_;
  std::vector<Call> calls_;
  std::vector<std::uint32_t> free_;
};

}  // namespace acc::simulation
