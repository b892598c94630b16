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

/// Registered memory: shared by all ranks of the node, a part for each. What lies in it needs no
/// copy on its way to the others.
class Regions {
 public:
  Regions(int rank, int size) : rank_{rank}, size_{size} {}

  /// Of the whole: all ranks' parts.
  [[nodiscard]] std::size_t bytes_for(std::size_t part) const noexcept;
  /// @param part bytes asked for; the same, in the same order, on every rank.
  SharedBuffer add(UniqueFd memory, std::size_t part);

  /// Where in its region a buffer of this rank lies, in a form that the others understand: never 0,
  /// and above any address. 0: it isn't (wholly) in one.
  [[nodiscard]] std::uint64_t where(const void* data, std::size_t bytes) const noexcept {
    return regions_.empty() ? 0 : look_up(data, bytes);
  }
  [[nodiscard]] static bool is_place(std::uint64_t where) noexcept { return where >> 63 != 0; }
  [[nodiscard]] static bool same_region(std::uint64_t a, std::uint64_t b) noexcept {
    return is_place(a) && a >> kOffsetBits == b >> kOffsetBits;
  }
  /// Of rank `rank`, as this process sees it. The region must be one of ours (`same_region` with
  /// what `where` gave here).
  [[nodiscard]] std::byte* at(std::uint64_t where, int rank) const noexcept;

 private:
  static constexpr int kOffsetBits = 48;
  struct Region {
    std::byte* base = nullptr;
    std::size_t stride = 0;  ///< from part to part
    std::size_t part = 0;
    /// The user holds it: when not, its addresses may be somebody else's already.
    std::shared_ptr<std::atomic<bool>> in_use;
  };
  [[nodiscard]] std::uint64_t look_up(const void* data, std::size_t bytes) const noexcept;

  int rank_;
  int size_;
  std::vector<Region> regions_;  ///< all there ever were: their order is their name
};

}  // namespace acc::runtime::shm
