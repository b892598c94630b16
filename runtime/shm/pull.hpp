#pragma once

#include "runtime/backend.hpp"
#include "runtime/shm/segment.hpp"

#include <cstddef>
#include <cstdint>
#include <vector>

/// Reading another process's memory directly: one copy in place of two. Needs the same user and no
/// stricter ptrace rules (Yama); whether it works is tried, and nothing is told if not.
namespace acc::runtime::shm {

inline constexpr std::uint64_t kProbeValue = 0x6163632d70756c6c;

/// Of all ranks: what they have published as `probe` is read as a trial.
[[nodiscard]] bool can_read_memory_of(const std::vector<RankFacts>& ranks,
                                      const Segment& segment) noexcept;
/// @return whether all of it could be read.
[[nodiscard]] bool read_memory_of(std::int64_t pid, std::uint64_t address, void* to,
                                  std::size_t bytes) noexcept;

}  // namespace acc::runtime::shm
