#include "agent/daemon/slot_table.hpp"

#include <algorithm>
#include <set>

namespace acc::agent::daemon {

SlotTable::SlotTable(std::uint32_t slots, std::vector<std::uint32_t> gpus)
    : slots_{slots}, gpus_{std::move(gpus)} {
  std::ranges::sort(gpus_);
}

bool SlotTable::can_hold(const SlotRequest& request) const {
  return request.slots <= slots_ && request.gpus <= gpus_.size();
}

std::uint32_t SlotTable::free_slots() const {
  std::uint64_t held = 0;
  for (const auto& [job, share] : held_) held += share.slots;
  return held >= slots_ ? 0 : slots_ - static_cast<std::uint32_t>(held);
}

std::vector<std::uint32_t> SlotTable::free_gpus() const {
  std::vector<std::uint32_t> free;
  for (const auto gpu : gpus_) {
    const bool is_held = std::ranges::any_of(
        held_, [&](const auto& one) { return std::ranges::count(one.second.gpus, gpu) > 0; });
    if (!is_held) free.push_back(gpu);
  }
  return free;
}

bool SlotTable::fits(const SlotRequest& request) const {
  return request.slots <= free_slots() && request.gpus <= free_gpus().size();
}

bool SlotTable::has_free(const SlotRequest& request) const {
  const std::string asked;  // no job has such an id
  SlotTable table = *this;
  table.ask(asked, request);
  while (const auto next = table.take_next())
    if (*next == asked) return true;
  return false;
}

void SlotTable::ask(const std::string& job, const SlotRequest& request) {
  const bool waits = std::ranges::any_of(queue_, [&](const auto& one) { return one.job == job; });
  if (!waits && !held_.contains(job)) queue_.push_back({job, request});
}

void SlotTable::restore(const std::string& job, std::uint32_t slots,
                        std::vector<std::uint32_t> gpus, std::uint32_t user) {
  held_[job] = {user, slots, std::move(gpus)};
}

std::vector<std::size_t> SlotTable::candidates() const {
  std::map<std::uint32_t, std::uint64_t> held;
  for (const auto& [job, share] : held_) held[share.user] += share.slots;
  std::vector<std::size_t> first;
  std::set<std::uint32_t> seen;
  for (std::size_t i = 0; i < queue_.size(); ++i)
    if (can_hold(queue_[i].request) && seen.insert(queue_[i].request.user).second)
      first.push_back(i);
  std::ranges::stable_sort(first, {}, [&](std::size_t i) { return held[queue_[i].request.user]; });
  return first;
}

std::optional<std::string> SlotTable::take_next() {
  std::vector<Waiting*> passed;
  for (const std::size_t i : candidates()) {
    if (!fits(queue_[i].request)) {
      if (queue_[i].passes >= kMostPasses) return std::nullopt;
      passed.push_back(&queue_[i]);
      continue;
    }
    for (auto* const one : passed) ++one->passes;
    const Waiting next = queue_[i];
    queue_.erase(queue_.begin() + static_cast<std::ptrdiff_t>(i));
    auto gpus = free_gpus();
    gpus.resize(next.request.gpus);
    held_[next.job] = {next.request.user, next.request.slots, std::move(gpus)};
    return next.job;
  }
  return std::nullopt;
}

void SlotTable::free(const std::string& job) {
  held_.erase(job);
  std::erase_if(queue_, [&](const auto& one) { return one.job == job; });
}

std::size_t SlotTable::waiting() const {
  return static_cast<std::size_t>(
      std::ranges::count_if(queue_, [&](const auto& one) { return can_hold(one.request); }));
}

const std::vector<std::uint32_t>& SlotTable::gpus_of(const std::string& job) const {
  static const std::vector<std::uint32_t> kNone;
  const auto found = held_.find(job);
  return found != held_.end() ? found->second.gpus : kNone;
}

std::vector<std::string> SlotTable::holders() const {
  std::vector<std::string> jobs;
  for (const auto& [job, share] : held_) jobs.push_back(job);
  return jobs;
}

}  // namespace acc::agent::daemon
