#include "runtime/selftest/elements.hpp"

#include "runtime/with_type.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace acc::selftest {

using namespace runtime;

namespace {

/// Limit of a sum: fits into a signed byte and into bfloat16's mantissa.
constexpr std::size_t kGreatestSum = 120;
/// At most this many ranks have a nonzero term at an index, so that terms still distinguish ranks.
constexpr std::size_t kTerms = 30;
constexpr std::size_t kGreatestValue = 100;

/// With many ranks only some have a term at an index, others at the next.
std::size_t term_of(std::size_t rank, std::size_t ranks, std::size_t index, std::size_t mixed) {
  const auto turns = (ranks + kTerms - 1) / kTerms;
  if (turns > 1 && (rank + index) % turns != 0) return 0;
  return mixed % (kGreatestSum / std::min(ranks, kTerms)) + 1;
}

}  // namespace

Elements::Elements(DType type, std::size_t count, std::size_t misalign)
    : type_{type},
      count_{count},
      first_{misalign * size_of(type)},
      bytes_(first_ + count * size_of(type) + 1) {}

void* Elements::at(std::size_t index) { return bytes_.data() + first_ + index * size_of(type_); }

void Elements::set(std::size_t index, double value) {
  with_type(type_, [&](auto zero) {
    const auto element = element_from<decltype(zero)>(value);
    std::memcpy(at(index), &element, sizeof element);
  });
}

double Elements::get(std::size_t index) const {
  return with_type(type_, [&](auto zero) {
    std::memcpy(&zero, bytes_.data() + first_ + index * sizeof zero, sizeof zero);
    return element_to_double(zero);
  });
}

std::vector<std::byte> Elements::bytes() const {
  const auto* begin = reinterpret_cast<const std::byte*>(bytes_.data()) + first_;
  return {begin, begin + count_ * size_of(type_)};
}

void Elements::poison() { std::memset(bytes_.data(), 0x7B, bytes_.size()); }

double value_of(ReduceOp op, int rank, int size, std::size_t index, int iteration) {
  const auto turn = static_cast<int>((index + static_cast<std::size_t>(iteration)) %
                                     static_cast<std::size_t>(size));
  if (op == ReduceOp::prod) return rank == turn ? 2 : rank == (turn + 1) % size ? 3 : 1;
  const auto mixed =
      index * 7 + static_cast<std::size_t>(rank) * 13 + static_cast<std::size_t>(iteration) * 5;
  const bool adds_up = op == ReduceOp::sum || op == ReduceOp::avg;
  return static_cast<double>(
      adds_up && size > 1
          ? term_of(static_cast<std::size_t>(rank), static_cast<std::size_t>(size), index, mixed)
          : mixed % kGreatestValue + 1);
}

double reduced(ReduceOp op, DType type, int size, std::size_t index, int iteration) {
  double result = value_of(op, 0, size, index, iteration);
  for (int rank = 1; rank < size; ++rank) {
    const double value = value_of(op, rank, size, index, iteration);
    switch (op) {
      case ReduceOp::sum:
      case ReduceOp::avg:
        result += value;
        break;
      case ReduceOp::prod:
        result *= value;
        break;
      case ReduceOp::max:
        result = std::max(result, value);
        break;
      case ReduceOp::min:
        result = std::min(result, value);
        break;
    }
  }
  if (op != ReduceOp::avg) return result;
  // One rounding, to the type; integers truncate.
  return with_type(type, [&](auto zero) {
    using T = decltype(zero);
    if constexpr (std::is_integral_v<T>) return std::trunc(result / size);
    if constexpr (std::is_same_v<T, double>) return result / size;
    return element_to_double(
        element_from<T>(static_cast<float>(result) / static_cast<float>(size)));
  });
}

}  // namespace acc::selftest
