#pragma once

#include "agent/daemon/jobs.hpp"

#include <cstdint>
#include <deque>
#include <vector>

/// The newest events, with numbers that never go back, also not after a restart (pure).
namespace acc::agent::daemon {

class EventRing {
 public:
  static constexpr std::size_t kKept = 4096;

  /// @param first  above all numbers of earlier lives
  explicit EventRing(std::uint64_t first) : next_{first} {}

  const JobEvent& add(JobEvent event) {
    event.number = next_++;
    events_.push_back(std::move(event));
    if (events_.size() > kKept) events_.pop_front();
    return events_.back();
  }

  template <class Sees>
  [[nodiscard]] std::vector<JobEvent> after(std::uint64_t number, Sees sees) const {
    std::vector<JobEvent> found;
    // Numbers are consecutive.
    const std::uint64_t oldest = next_ - events_.size();
    const std::uint64_t skip = number < oldest ? 0 : number - oldest + 1;
    for (std::uint64_t i = skip; i < events_.size(); ++i)
      if (sees(events_[i])) found.push_back(events_[i]);
    return found;
  }
  [[nodiscard]] std::uint64_t next() const { return next_; }

 private:
  std::uint64_t next_;
  std::deque<JobEvent> events_;
};

}  // namespace acc::agent::daemon
