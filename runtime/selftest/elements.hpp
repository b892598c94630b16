#pragma once

#include <acc/types.hpp>
#include <cstddef>
#include <cstdint>
#include <vector>

/// Test data whose results each rank computes without communication: small whole numbers that
/// depend on the rank, the index and the iteration, so that a swapped slice or stale data shows,
/// and that are exact in every type and any order of summation.
namespace acc::selftest {

using runtime::DType;
using runtime::ReduceOp;

/// Elements of a type that is only known at run time, `misalign` elements behind an aligned
/// address.
class Elements {
 public:
  Elements(DType type, std::size_t count, std::size_t misalign = 0);

  [[nodiscard]] void* data() { return at(0); }
  [[nodiscard]] void* at(std::size_t index);
  [[nodiscard]] std::size_t count() const { return count_; }
  [[nodiscard]] std::vector<std::byte> bytes() const;
  void set(std::size_t index, double value);
  [[nodiscard]] double get(std::size_t index) const;
  /// Fills with a pattern that no result has, so that missing writes are detected.
  void poison();

 private:
  DType type_;
  std::size_t count_;
  std::size_t first_;  ///< bytes before the first element
  std::vector<unsigned char> bytes_;
};

/// For data that is only moved: its values are not limited by the range of a sum, so a hundred
/// differ.
inline constexpr ReduceOp kMoved = ReduceOp::max;
/// What rank `rank` of `size` contributes at `index`.
[[nodiscard]] double value_of(ReduceOp op, int rank, int size, std::size_t index, int iteration);
/// What the reduction over all ranks gives there.
[[nodiscard]] double reduced(ReduceOp op, DType type, int size, std::size_t index, int iteration);

}  // namespace acc::selftest
