#include "runtime/selftest/elements.hpp"

#include <cmath>
#include <cstring>

namespace acc::selftest {

using namespace runtime;

namespace {

template <class F>
auto with_type(DType type, F&& use) {
  switch (type) {
    case DType::i8:
      return use(std::int8_t{});
    case DType::u8:
      return use(std::uint8_t{});
    case DType::i32:
      return use(std::int32_t{});
    case DType::u32:
      return use(std::uint32_t{});
    case DType::i64:
      return use(std::int64_t{});
    case DType::u64:
      return use(std::uint64_t{});
    case DType::f16:
      return use(Half{});
    case DType::f32:
      return use(float{});
    case DType::f64:
      return use(double{});
    case DType::bf16:
      return use(BFloat16{});
  }
  return use(std::uint8_t{});
}

template <class T>
T from_double(double value) {
  if constexpr (std::is_arithmetic_v<T>)
    return static_cast<T>(value);
  else
    return T{static_cast<float>(value)};
}

template <class T>
double to_double(T value) {
  if constexpr (std::is_arithmetic_v<T>)
    return static_cast<double>(value);
  else
    return static_cast<double>(static_cast<float>(value));
}

/// Sums stay within the 8 bits of bfloat16's mantissa and of the bytes, for up to 64 ranks.
double greatest_term(int size) { return size <= 1 ? 100 : std::max(1.0, std::floor(120.0 / size)); }

}  // namespace

Elements::Elements(DType type, std::size_t count, std::size_t misalign)
    : type_{type},
      count_{count},
      first_{misalign * size_of(type)},
      bytes_(first_ + count * size_of(type) + 1) {}

void* Elements::at(std::size_t index) { return bytes_.data() + first_ + index * size_of(type_); }

void Elements::set(std::size_t index, double value) {
  with_type(type_, [&](auto zero) {
    const auto element = from_double<decltype(zero)>(value);
    std::memcpy(at(index), &element, sizeof element);
  });
}

double Elements::get(std::size_t index) const {
  return with_type(type_, [&](auto zero) {
    std::memcpy(&zero, bytes_.data() + first_ + index * sizeof zero, sizeof zero);
    return to_double(zero);
  });
}

void Elements::poison() { std::memset(bytes_.data(), 0x7B, bytes_.size()); }

double value_of(ReduceOp op, int rank, int size, std::size_t index, int iteration) {
  const auto turn = static_cast<int>((index + static_cast<std::size_t>(iteration)) %
                                     static_cast<std::size_t>(size));
  if (op == ReduceOp::prod) return rank == turn ? 2 : rank == (turn + 1) % size ? 3 : 1;
  const auto mixed =
      index * 7 + static_cast<std::size_t>(rank) * 13 + static_cast<std::size_t>(iteration) * 5;
  return static_cast<double>(mixed % static_cast<std::size_t>(greatest_term(size))) + 1;
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
    return to_double(from_double<T>(static_cast<float>(result) / static_cast<float>(size)));
  });
}

}  // namespace acc::selftest
