#include "rendezvous/standby_choice.hpp"

#include <algorithm>
#include <chrono>
#include <utility>

namespace acc::rendezvous {

StandbyChoice::StandbyChoice(std::string own_name, Millis heartbeat_timeout, Instant now)
    : own_name_{std::move(own_name)}, window_{heartbeat_timeout * 3 / 2}, lost_at_{now} {}

std::optional<std::size_t> StandbyChoice::own() const {
  const auto found = std::ranges::find(standbys_, own_name_, &Standby::node);
  if (found == standbys_.end()) return std::nullopt;
  return static_cast<std::size_t>(found - standbys_.begin());
}

bool StandbyChoice::is_own(const HostPort& at) const {
  const auto index = own();
  return index && standbys_[*index].at == at;
}

bool StandbyChoice::is_before(const HostPort& other, const std::string& name) const {
  const auto index = own();
  const auto found = std::ranges::find(standbys_, other, &Standby::at);
  return index && found != standbys_.end() && found->node == name &&
         standbys_.begin() + static_cast<std::ptrdiff_t>(*index) < found;
}

void StandbyChoice::lost(Instant now) {
  lost_at_ = now;
  passed_.reset();
}

Millis StandbyChoice::lost_for(Instant now) const {
  return std::chrono::duration_cast<Millis>(now - lost_at_);
}

std::size_t StandbyChoice::window(Instant now) const {
  return static_cast<std::size_t>((now - lost_at_) / window_);
}

Instant StandbyChoice::window_end(Instant now) const {
  return lost_at_ + window_ * ((now - lost_at_) / window_ + 1);
}

void StandbyChoice::pass_over(const HostPort& at, Instant now) {
  if (passed_in_ != window(now)) passed_.reset();
  passed_in_ = window(now);
  const auto found = std::ranges::find(standbys_, at, &Standby::at);
  if (found != standbys_.end()) passed_.set(static_cast<std::size_t>(found - standbys_.begin()));
}

// 0, 1, 0, 2, 0, 3 …: agents whose windows began at different times still meet at the first
// standby.
std::size_t StandbyChoice::first_called(Instant now) const {
  const auto number = window(now);
  return number % 2 == 0 ? 0 : (number / 2 + 1) % standbys_.size();
}

// The standby to vote for: the one of this window, or the next that wasn't passed over. The own
// index means that this node waits for votes.
std::size_t StandbyChoice::preferred(const HostPort& lost, Instant now) const {
  const auto mine = own();
  const auto size = standbys_.size();
  const auto first = first_called(now);
  for (std::size_t i = 0; i < size; ++i) {
    const auto index = (first + i) % size;
    const bool is_passed = passed_in_ == window(now) && passed_[index];
    if (index == mine || (!is_passed && standbys_[index].at != lost)) return index;
  }
  return (first + size - 1) % size;  // none left: all are tried again
}

std::vector<HostPort> StandbyChoice::to_call(const HostPort& lost, Instant now) const {
  std::vector<HostPort> list;
  const auto mine = own();
  // A standby that waits for votes in its own window calls no other one.
  if (now < stands_until_ || standbys_.empty() || mine == first_called(now)) return list;
  const auto size = standbys_.size();
  const auto first = first_called(now);
  const auto called = preferred(lost, now);
  // Including those that were passed over: they may be back, or merely slow.
  for (std::size_t i = (called + size - first) % size + 1; i-- > 0;) {
    if ((first + i) % size != mine) list.push_back(standbys_[(first + i) % size].at);
  }
  for (std::size_t i = first; i-- > 0;) {
    if (i != mine) list.push_back(standbys_[i].at);
  }
  return list;
}

std::vector<HostPort> StandbyChoice::others() const {
  std::vector<HostPort> list;
  const auto mine = own();
  for (std::size_t i = 0; i < standbys_.size(); ++i) {
    if (i != mine) list.push_back(standbys_[i].at);
  }
  return list;
}

}  // namespace acc::rendezvous
