#pragma once

#include "agent/daemon/jobs.hpp"

#include <algorithm>
#include <cstdint>
#include <deque>
#include <map>
#include <vector>

/// The newest events, with numbers that never go back, also not after a restart (pure).
namespace acc::agent::daemon {

class EventRing {
 public:
  static constexpr std::size_t kKept = 4096;

  /// @param first  above all numbers of earlier lives
  explicit EventRing(std::uint64_t first) : next_{first} {}

  /// Where it is full the oldest event goes of the user who has the most: nobody's are pushed out
  /// by another's. The daemon's own count as root's.
  const JobEvent& add(JobEvent event) {
    event.number = next_++;
    ++of_users_[event.uid];
    events_.push_back(std::move(event));
    if (events_.size() > kKept) drop_one();
    return events_.back();
  }

  template <class Sees>
  [[nodiscard]] std::vector<JobEvent> after(std::uint64_t number, Sees sees) const {
    std::vector<JobEvent> found;
    auto at = std::ranges::upper_bound(events_, number, {}, &JobEvent::number);
    std::copy_if(at, events_.end(), std::back_inserter(found), sees);
    return found;
  }
  [[nodiscard]] std::uint64_t next() const { return next_; }

 private:
  void drop_one() {
    const auto by_count = [](const auto& one, const auto& other) {
      return one.second < other.second;
    };
    const auto most = std::max_element(of_users_.begin(), of_users_.end(), by_count);
    const auto oldest = std::ranges::find(events_, most->first, &JobEvent::uid);
    events_.erase(oldest);
    if (--most->second == 0) of_users_.erase(most);
  }

  std::uint64_t next_;
  std::deque<JobEvent> events_;            ///< by number
  std::map<uid_t, std::size_t> of_users_;  ///< how many
};

}  // namespace acc::agent::daemon
