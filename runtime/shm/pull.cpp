#include "runtime/shm/pull.hpp"

#include <sys/uio.h>

namespace acc::runtime::shm {

bool read_memory_of(std::int64_t pid, std::uint64_t address, void* to, std::size_t bytes) noexcept {
  auto* at = static_cast<std::byte*>(to);
  while (bytes > 0) {
    const iovec local{at, bytes};
    const iovec remote{reinterpret_cast<void*>(address), bytes};
    const auto read = ::process_vm_readv(static_cast<pid_t>(pid), &local, 1, &remote, 1, 0);
    if (read <= 0) return false;
    at += read;
    address += static_cast<std::uint64_t>(read);
    bytes -= static_cast<std::size_t>(read);
  }
  return true;
}

bool can_read_memory_of(const std::vector<RankFacts>& ranks, const Segment& segment) noexcept {
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    std::uint64_t value = 0;
    const auto address =
        segment.rank_state(static_cast<int>(r)).probe.load(std::memory_order_relaxed);
    if (address == 0 || !read_memory_of(ranks[r].pid, address, &value, sizeof value) ||
        value != kProbeValue)
      return false;
  }
  return true;
}

}  // namespace acc::runtime::shm
