#include "runtime/shm/collectives.hpp"

#include <algorithm>
#include <cstring>
#include <numeric>

namespace acc::runtime::shm {

void copy_bytes(void* to, const void* from, std::size_t bytes) noexcept {
  if (bytes > 0 && to != from) std::memcpy(to, from, bytes);
}

Collectives::Collectives(Peers& peers, const Regions& regions)
    : peers_{peers},
      regions_{regions},
      segment_{peers.segment()},
      rank_{peers.rank()},
      size_{peers.size()},
      inputs_(static_cast<std::size_t>(size_)) {}

std::size_t Collectives::Work::count_of(int rank) const noexcept {
  const auto counts = active.call.counts;
  return counts.empty() ? what.count : counts[static_cast<std::size_t>(rank)];
}

std::size_t Collectives::Work::offset_of(int rank) const noexcept {
  const auto counts = active.call.counts;
  if (counts.empty()) return static_cast<std::size_t>(rank) * bytes;
  return std::accumulate(counts.begin(), counts.begin() + rank, std::size_t{0}) * item;
}

std::size_t Collectives::Work::most_bytes() const noexcept {
  const auto counts = active.call.counts;
  return counts.empty() ? bytes : *std::max_element(counts.begin(), counts.end()) * item;
}

std::size_t Collectives::Work::whole_bytes(int ranks) const noexcept {
  return active.call.counts.empty() ? bytes * static_cast<std::size_t>(ranks) : bytes;
}

void Collectives::run(ActiveCall& active) {
  const Call& call = active.call;
  const auto* send = static_cast<const std::byte*>(call.send);
  auto* recv = static_cast<std::byte*>(call.recv);
  // A broadcast has one buffer, given as `send` or `recv`.
  if (call.what.operation == Operation::broadcast && send == nullptr) send = recv;
  const Work work{active, call.what, send, recv, size_of(call.what.dtype), call.bytes()};
  if (size_ == 1) {
    alone(work);
  } else if (call.by_pairs()) {
    all_to_all_v(work);
  } else if (staged_bytes(work) <= small_limit(work)) {
    small(work);
  } else if (const auto at = addresses(work); at.send != 0 || at.recv != 0 || arrives_first(work)) {
    peers_.arrive(active, at.send, at.recv);
    peers_.await_arrivals(active);
    agreed(work);
  } else {
    staged(work, false);
  }
  peers_.complete();
}

/// Bytes staged by the rank that stages most.
std::size_t Collectives::staged_bytes(const Work& work) const noexcept {
  switch (work.what.operation) {
    case Operation::all_gather:
    case Operation::gather:
      return work.most_bytes();
    case Operation::scatter:
    case Operation::reduce_scatter:
    case Operation::all_to_all:
      return work.whole_bytes(size_);
    case Operation::all_reduce:
    case Operation::reduce:
    case Operation::broadcast:
      return work.bytes;
    default:
      return 0;
  }
}

std::size_t Collectives::small_limit(const Work&) const noexcept { return segment_.layout().small; }

/// Most calls stage their first chunk before arriving. Not those that write into slots of other
/// ranks, which may be in another call: then nothing may happen but the report of the mismatch.
bool Collectives::arrives_first(const Work& work) noexcept {
  if (work.is(Operation::scatter)) return true;
  const PullTrial* const pulls = trial(work);
  return pulls != nullptr &&
         !pulls->is_over();  // both ways start alike, so that they can be compared
}

void Collectives::alone(const Work& work) {
  peers_.arrive(work.active);
  if (work.is(Operation::barrier) || work.is(Operation::split)) return;
  copy_bytes(work.recv, work.send, work.bytes_of(0));
}

Collectives::Span Collectives::slice(std::size_t count, std::size_t item, int rank) const noexcept {
  const auto ranks = static_cast<std::size_t>(size_);
  const auto line = kLine / item;
  const auto each = ((count + ranks - 1) / ranks + line - 1) / line * line;
  const auto index = static_cast<std::size_t>(rank);
  return {std::min(count, each * index), std::min(count, each * (index + 1))};
}

}  // namespace acc::runtime::shm
