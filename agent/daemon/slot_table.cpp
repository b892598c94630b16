#include "agent/daemon/slot_table.hpp"

#include <algorithm>

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
  // Those that were asked for before get theirs in a moment, or wait; none is passed over.
  std::uint64_t slots = request.slots;
  std::uint64_t gpus = request.gpus;
  for (const auto& one : queue_) {
    slots += one.request.slots;
    gpus += one.request.gpus;
  }
  return slots <= free_slots() && gpus <= free_gpus().size();
}

void SlotTable::ask(const std::string& job, const SlotRequest& request) {
  const bool waits = std::ranges::any_of(queue_, [&](const auto& one) { return one.job == job; });
  if (!waits && !held_.contains(job)) queue_.push_back({job, request});
}

void SlotTable::restore(const std::string& job, std::uint32_t slots,
                        std::vector<std::uint32_t> gpus) {
  held_[job] = {slots, std::move(gpus)};
}

std::optional<std::string> SlotTable::take_next() {
  if (queue_.empty() || !fits(queue_.front().request)) return std::nullopt;
  const Waiting next = queue_.front();
  queue_.pop_front();
  auto gpus = free_gpus();
  gpus.resize(next.request.gpus);
  held_[next.job] = {next.request.slots, std::move(gpus)};
  return next.job;
}

void SlotTable::free(const std::string& job) {
  held_.erase(job);
  std::erase_if(queue_, [&](const auto& one) { return one.job == job; });
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
