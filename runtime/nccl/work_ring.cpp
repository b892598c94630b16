#include "runtime/nccl/work_ring.hpp"

namespace acc::runtime::nccl {

WorkRing::~WorkRing() {
  if (leaked_) return;
  for (const auto& slot : slots_) {
    if (slot.events.ready != nullptr) (void)api_.event_destroy(slot.events.ready);
    if (slot.events.end != nullptr) (void)api_.event_destroy(slot.events.end);
  }
}

WorkRing::Events WorkRing::begin(Entry entry, bool captured) {
  const auto ticket = last() + 1;
  auto& at = slot(ticket);
  for (auto* event : {&at.events.ready, &at.events.end}) {
    if (*event != nullptr) continue;
    cuda::check(api_, "cudaEventCreateWithFlags",
                api_.event_create_with_flags(event, cuda::kEventDisableTiming));
  }
  entry.ticket = ticket;
  at.captured.store(captured, std::memory_order_relaxed);
  {
    const std::lock_guard lock{words_};
    at.entry = entry;
  }
  head_.store(ticket, std::memory_order_release);
  return at.events;
}

void WorkRing::raise(std::atomic<std::uint64_t>& mark, std::uint64_t to) noexcept {
  auto now = mark.load(std::memory_order_relaxed);
  while (now < to && !mark.compare_exchange_weak(now, to, std::memory_order_acq_rel)) {
  }
}

cuda::Status WorkRing::query(std::uint64_t ticket) noexcept {
  auto& at = slot(ticket);
  // A graph runs when the user launches it, and the user waits for it.
  if (at.captured.load(std::memory_order_relaxed)) return cuda::Status::success;
  return api_.event_query(at.events.end);
}

cuda::Status WorkRing::ask(std::uint64_t ticket) noexcept {
  if (last_done() >= ticket) return cuda::Status::success;
  if (enqueued_.load(std::memory_order_acquire) < ticket) return cuda::Status::not_ready;
  auto status = query(ticket);
  // A captured call implies nothing about those before it.
  if (status == cuda::Status::success && slot(ticket).captured.load(std::memory_order_relaxed)) {
    status = advance();
    if (status == cuda::Status::success && last_done() < ticket) status = cuda::Status::not_ready;
    return status;
  }
  if (status == cuda::Status::success) {
    raise(started_, ticket);
    raise(done_, ticket);
  }
  return status;
}

cuda::Status WorkRing::advance() noexcept {
  const auto newest = enqueued_.load(std::memory_order_acquire);
  auto oldest = last_done() + 1;
  // In a healthy run most are done: starting with the newest saves queries.
  if (oldest < newest && !slot(newest).captured.load(std::memory_order_relaxed) &&
      query(newest) == cuda::Status::success) {
    oldest = newest + 1;
  }
  for (; oldest <= newest; ++oldest) {
    const auto status = query(oldest);
    if (status == cuda::Status::not_ready) break;
    if (status != cuda::Status::success) return status;
  }
  raise(started_, oldest - 1);
  raise(done_, oldest - 1);
  if (oldest <= newest && api_.event_query(slot(oldest).events.ready) == cuda::Status::success) {
    raise(started_, oldest);
  }
  return cuda::Status::success;
}

std::optional<WorkRing::Entry> WorkRing::entry(std::uint64_t ticket) const {
  const std::lock_guard lock{words_};
  const auto& kept = slots_[ticket % kSlots].entry;
  if (ticket == 0 || ticket > last() || kept.ticket != ticket) return std::nullopt;
  return kept;
}

}  // namespace acc::runtime::nccl
