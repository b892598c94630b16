#pragma once

#include <acc/types.hpp>
#include <cstdint>
#include <type_traits>

namespace acc::runtime {

/// Calls `use` with a value (zero) of the C++ type behind `type`. @return what it returns
template <class Use>
decltype(auto) with_type(DType type, Use&& use) {
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
    case DType::bf16:
      return use(BFloat16{});
    case DType::f32:
      return use(float{});
    case DType::f64:
      break;
  }
  return use(double{});
}

/// Converts a double to `T`, through float where T has 16 bits.
template <class T>
T element_from(double value) {
  if constexpr (std::is_arithmetic_v<T>)
    return static_cast<T>(value);
  else
    return T{static_cast<float>(value)};
}

template <class T>
double element_to_double(T value) {
  if constexpr (std::is_arithmetic_v<T>)
    return static_cast<double>(value);
  else
    return static_cast<double>(static_cast<float>(value));
}

}  // namespace acc::runtime
