#include "runtime/shm/work.hpp"

#include <algorithm>
#include <cstring>
#include <numeric>

namespace acc::runtime::shm {

Work::Work(ActiveCall& call)
    : active{call},
      what{call.call.what},
      send{static_cast<const std::byte*>(call.call.send)},
      recv{static_cast<std::byte*>(call.call.recv)},
      item{size_of(what.dtype)},
      bytes{call.call.bytes()} {
  // A broadcast has one buffer, given as `send` or `recv`.
  if (is(Operation::broadcast) && send == nullptr) send = recv;
}

std::size_t Work::count_of(int rank) const noexcept {
  const auto counts = active.call.counts;
  return counts.empty() ? what.count : counts[static_cast<std::size_t>(rank)];
}

std::size_t Work::offset_of(int rank) const noexcept {
  const auto counts = active.call.counts;
  if (counts.empty()) return static_cast<std::size_t>(rank) * bytes;
  return std::accumulate(counts.begin(), counts.begin() + rank, std::size_t{0}) * item;
}

std::size_t Work::most_bytes() const noexcept {
  const auto counts = active.call.counts;
  return counts.empty() ? bytes : *std::max_element(counts.begin(), counts.end()) * item;
}

std::size_t Work::whole_bytes(int ranks) const noexcept {
  return active.call.counts.empty() ? bytes * static_cast<std::size_t>(ranks) : bytes;
}

std::size_t Work::staged_bytes(int ranks) const noexcept {
  switch (what.operation) {
    case Operation::all_gather:
    case Operation::gather:
      return most_bytes();
    case Operation::scatter:
    case Operation::reduce_scatter:
    case Operation::all_to_all:
      return whole_bytes(ranks);
    case Operation::all_reduce:
    case Operation::reduce:
    case Operation::broadcast:
      return bytes;
    default:
      return 0;
  }
}

Span slice(std::size_t count, std::size_t item, int rank, int ranks) noexcept {
  const auto parts = static_cast<std::size_t>(ranks);
  const auto line = kLine / item;
  const auto each = ((count + parts - 1) / parts + line - 1) / line * line;
  const auto index = static_cast<std::size_t>(rank);
  return {std::min(count, each * index), std::min(count, each * (index + 1))};
}

void copy_bytes(void* to, const void* from, std::size_t bytes) noexcept {
  if (bytes > 0 && to != from) std::memcpy(to, from, bytes);
}

}  // namespace acc::runtime::shm
