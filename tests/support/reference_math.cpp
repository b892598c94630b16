#include "tests/support/reference_math.hpp"

#include "runtime/with_type.hpp"

#include <cstring>
#include <type_traits>

namespace acc::testing {

using runtime::BFloat16;
using runtime::DType;
using runtime::Half;
using runtime::ReduceOp;

namespace {

// What T is added up in, and how an overflow of integers becomes a wrap.
template <class T>
struct Sum {
  using type = T;
};
template <>
struct Sum<Half> {
  using type = float;
};
template <>
struct Sum<BFloat16> {
  using type = float;
};

template <class S>
S combine(S a, S b, ReduceOp op) {
  switch (op) {
    case ReduceOp::max:
      return a < b ? b : a;
    case ReduceOp::min:
      return b < a ? b : a;
    case ReduceOp::prod:
      if constexpr (std::is_integral_v<S>)
        return static_cast<S>(static_cast<std::uint64_t>(a) * static_cast<std::uint64_t>(b));
      else
        return a * b;
    case ReduceOp::sum:
    case ReduceOp::avg:
      break;
  }
  if constexpr (std::is_integral_v<S>)
    return static_cast<S>(static_cast<std::uint64_t>(a) + static_cast<std::uint64_t>(b));
  else
    return a + b;
}

template <class T>
void reduce_as(std::span<const void* const> from, void* to, std::size_t count, ReduceOp op) {
  using S = typename Sum<T>::type;
  for (std::size_t i = 0; i < count; ++i) {
    S made{};
    for (std::size_t r = 0; r < from.size(); ++r) {
      T value;  // the buffers may be misaligned
      std::memcpy(&value, static_cast<const char*>(from[r]) + i * sizeof(T), sizeof(T));
      made = r == 0 ? static_cast<S>(value) : combine(made, static_cast<S>(value), op);
    }
    if (op == ReduceOp::avg) made = static_cast<S>(made / static_cast<S>(from.size()));
    const T rounded{static_cast<T>(made)};
    std::memcpy(static_cast<char*>(to) + i * sizeof(T), &rounded, sizeof(T));
  }
}

}  // namespace

void reference_reduce(std::span<const void* const> from, void* to, std::size_t count, DType type,
                      ReduceOp op) {
  with_type(type, [&](auto zero) { reduce_as<decltype(zero)>(from, to, count, op); });
}

}  // namespace acc::testing
