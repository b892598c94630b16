#pragma once

#include "runtime/selftest/elements.hpp"

#include <acc/types.hpp>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

/// What every rank must hold after a call, by the values that acc-test uses too
/// (runtime/selftest/elements.hpp): exact in any type and any order of summation.
namespace acc::testing {

using runtime::DType;
using runtime::ReduceOp;

using Bytes = std::vector<std::byte>;

#if defined(__SANITIZE_THREAD__)  // what threads do to each other doesn't depend on the type
inline constexpr DType kAllTypes[] = {DType::f32};
#else
inline constexpr DType kAllTypes[] = {DType::i8,  DType::u8,  DType::i32, DType::u32, DType::i64,
                                      DType::u64, DType::f16, DType::f32, DType::f64, DType::bf16};
#endif
inline constexpr ReduceOp kAllOps[] = {ReduceOp::sum, ReduceOp::prod, ReduceOp::max, ReduceOp::min,
                                       ReduceOp::avg};

/// What rank `rank` of `ranks` contributes: `count` elements from index `first` on.
[[nodiscard]] Bytes inputs(DType type, ReduceOp op, std::size_t first, std::size_t count, int rank,
                           int ranks, std::uint64_t round);
/// What their reduction gives.
[[nodiscard]] Bytes reductions(DType type, ReduceOp op, std::size_t first, std::size_t count,
                               int ranks, std::uint64_t round);

/// A buffer at an address that is `off` bytes behind an aligned one, with guards on both sides and
/// poison inside.
class Buffer {
 public:
  explicit Buffer(std::size_t bytes, std::size_t off = 0)
      : bytes_{bytes}, off_{kGuard + off}, memory_(bytes + 2 * kGuard + off, kPoison) {}
  explicit Buffer(const Bytes& content, std::size_t off = 0) : Buffer{content.size(), off} {
    if (!content.empty()) std::memcpy(data(), content.data(), content.size());
  }
  [[nodiscard]] std::byte* data() { return memory_.data() + off_; }
  [[nodiscard]] bool holds(const Bytes& wanted) const {
    return wanted.size() == bytes_ && guards_hold() &&
           (bytes_ == 0 || std::memcmp(memory_.data() + off_, wanted.data(), bytes_) == 0);
  }
  [[nodiscard]] bool untouched() const { return holds(Bytes(bytes_, kPoison)); }

 private:
  static constexpr std::size_t kGuard = 64;
  static constexpr std::byte kPoison{0xa5};
  [[nodiscard]] bool guards_hold() const {
    for (std::size_t i = 0; i < off_; ++i)
      if (memory_[i] != kPoison) return false;
    for (std::size_t i = off_ + bytes_; i < memory_.size(); ++i)
      if (memory_[i] != kPoison) return false;
    return true;
  }
  std::size_t bytes_;
  std::size_t off_;
  Bytes memory_;
};

}  // namespace acc::testing
