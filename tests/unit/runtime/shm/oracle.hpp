#pragma once

#include "runtime/with_type.hpp"

#include <acc/types.hpp>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

/// What every rank must hold after a call, worked out without communication, as nccl-tests does it:
/// the inputs are small whole numbers that depend on rank, index and round, so sums are exact in
/// any type, and a slice that was swapped or left from an earlier round is seen.
namespace acc::runtime::testing {

using Bytes = std::vector<std::byte>;

#if defined(__SANITIZE_THREAD__)  // what threads do to each other doesn't depend on the type
inline constexpr DType kAllTypes[] = {DType::f32};
#else
inline constexpr DType kAllTypes[] = {DType::i8,  DType::u8,  DType::i32, DType::u32, DType::i64,
                                      DType::u64, DType::f16, DType::f32, DType::f64, DType::bf16};
#endif
inline constexpr ReduceOp kAllOps[] = {ReduceOp::sum, ReduceOp::prod, ReduceOp::max, ReduceOp::min,
                                       ReduceOp::avg};

inline std::int64_t input(ReduceOp op, std::size_t index, int rank, std::uint64_t round) {
  const auto mixed = index * 7 + static_cast<std::size_t>(rank) * 13 + round * 5 + index / 61;
  if (op == ReduceOp::prod) return static_cast<std::int64_t>(mixed % 2 + 1);
  return static_cast<std::int64_t>(mixed % 12);
}

inline void put(std::byte* at, DType type, double value) {
  with_type(type, [&](auto zero) {
    using T = decltype(zero);
    T element{};
    if constexpr (std::is_integral_v<T>)
      element = static_cast<T>(static_cast<std::int64_t>(value));  // a negative one wraps around
    else
      element = element_from<T>(value);
    std::memcpy(at, &element, sizeof element);
  });
}

inline double reduced(ReduceOp op, DType type, std::size_t index, int ranks, std::uint64_t round) {
  std::int64_t value = input(op, index, 0, round);
  for (int r = 1; r < ranks; ++r) {
    const auto next = input(op, index, r, round);
    if (op == ReduceOp::prod)
      value *= next;
    else if (op == ReduceOp::max)
      value = next > value ? next : value;
    else if (op == ReduceOp::min)
      value = next < value ? next : value;
    else
      value += next;
  }
  if (op != ReduceOp::avg) return static_cast<double>(value);
  if (type == DType::f64) return static_cast<double>(value) / ranks;
  if (type == DType::f16 || type == DType::f32 || type == DType::bf16)
    return static_cast<double>(static_cast<float>(value) / static_cast<float>(ranks));
  return static_cast<double>(value / ranks);
}

/// What `rank` brings: `count` elements from `first` of its own numbering on.
inline Bytes inputs(DType type, ReduceOp op, std::size_t first, std::size_t count, int rank,
                    std::uint64_t round) {
  Bytes bytes(count * size_of(type));
  for (std::size_t i = 0; i < count; ++i)
    put(bytes.data() + i * size_of(type), type,
        static_cast<double>(input(op, first + i, rank, round)));
  return bytes;
}
inline Bytes reductions(DType type, ReduceOp op, std::size_t first, std::size_t count, int ranks,
                        std::uint64_t round) {
  Bytes bytes(count * size_of(type));
  for (std::size_t i = 0; i < count; ++i)
    put(bytes.data() + i * size_of(type), type, reduced(op, type, first + i, ranks, round));
  return bytes;
}

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

}  // namespace acc::runtime::testing
