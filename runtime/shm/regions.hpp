#pragma once

#include "common/unique_fd.hpp"
#include "runtime/backend.hpp"
#include "runtime/shm/segment.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

namespace acc::runtime::shm {

/// Registered memory, shared by all ranks of the node, with a part for each. Collectives access it
/// without staging copies.
class Regions {
 public:
  Regions(int rank, int size) : rank_{rank}, size_{size} {}

  /// Bytes of all ranks' parts.
  [[nodiscard]] std::size_t bytes_for(std::size_t part) const noexcept;
  /// @param part bytes asked for; the same, in the same order, on every rank.
  SharedBuffer add(UniqueFd memory, std::size_t part);

  /// Encodes a buffer of this rank as region and offset for the other ranks: never 0, and above any
  /// address. 0: not (wholly) in a region.
  [[nodiscard]] std::uint64_t where(const void* data, std::size_t bytes) const noexcept {
    return regions_.empty() ? 0 : look_up(data, bytes);
  }
  [[nodiscard]] static bool is_place(std::uint64_t where) noexcept { return where >> 63 != 0; }
  [[nodiscard]] static bool same_region(std::uint64_t a, std::uint64_t b) noexcept {
    return is_place(a) && a >> kOffsetBits == b >> kOffsetBits;
  }
  /// The address in this process of a buffer of rank `rank`. The region must exist here
  /// (`same_region` with a result of this rank's `where`).
  [[nodiscard]] std::byte* at(std::uint64_t where, int rank) const noexcept;

 private:
  static constexpr int kOffsetBits = 48;
  /// Regions that have a number; buffers in later ones go through staging copies, as any other.
  static constexpr std::size_t kMostNumbers = std::size_t{1} << (63 - kOffsetBits);
  struct Region {
    std::byte* base = nullptr;
    std::size_t stride = 0;  ///< bytes from part to part
    std::size_t part = 0;
    /// Held by the user; once released its addresses may be reused.
    std::shared_ptr<std::atomic<bool>> in_use;
  };
  [[nodiscard]] std::uint64_t look_up(const void* data, std::size_t bytes) const noexcept;

  int rank_;
  int size_;
  std::vector<Region> regions_;  ///< all ever made: identified by their index
};

}  // namespace acc::runtime::shm
