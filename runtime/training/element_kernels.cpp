#include "runtime/training/element_kernels.hpp"

#include "runtime/training/cast.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

namespace acc::runtime::training {
namespace {

constexpr std::size_t kConvertBlock = 1024;  ///< elements of 16 bits that are floats at a time

enum class Back : bool { no, yes };

/// work(T* values, count) on the elements as float or double; Back: what it changed is kept.
template <Back kBack, class Work>
void on_elements(void* values, DType type, std::size_t count, const Work& work) {
  if (type == DType::f32) return work(static_cast<float*>(values), count);
  if (type == DType::f64) return work(static_cast<double*>(values), count);
  std::array<float, kConvertBlock> block;
  auto* at = static_cast<std::byte*>(values);
  for (std::size_t done = 0; done < count; done += kConvertBlock) {
    const std::size_t some = std::min(kConvertBlock, count - done);
    to_floats(at + done * size_of(type), type, block.data(), some);
    work(block.data(), some);
    if constexpr (kBack == Back::yes)
      from_floats(block.data(), at + done * size_of(type), type, some);
  }
}

template <class T>
using BitsOf = std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint64_t>;

/// Without a branch, so that the loop is vectorized.
template <class T>
auto is_bad(T value) {
  using Bits = BitsOf<T>;
  constexpr Bits kExponent = std::bit_cast<Bits>(std::numeric_limits<T>::infinity());
  return static_cast<Bits>((std::bit_cast<Bits>(value) & kExponent) == kExponent ? 1 : 0);
}

}  // namespace

bool scale(void* values, DType type, std::size_t count, double factor) {
  bool finite = true;
  on_elements<Back::yes>(values, type, count, [&]<class T>(T* at, std::size_t some) {
    const auto by = static_cast<T>(factor);
    decltype(is_bad(T{})) bad = 0;
    for (std::size_t i = 0; i < some; ++i) {
      bad |= is_bad(at[i]);
      at[i] *= by;
    }
    finite &= bad == 0;
  });
  return finite;
}

void clamp(void* values, DType type, std::size_t count, double limit) {
  on_elements<Back::yes>(values, type, count, [&]<class T>(T* at, std::size_t some) {
    const auto top = static_cast<T>(limit);
    for (std::size_t i = 0; i < some; ++i) {
      const T value = at[i];
      at[i] = value > top ? top : value < -top ? -top : value;  // comparisons with NaN are false
    }
  });
}

double largest(const void* values, DType type, std::size_t count) {
  double most = 0;
  on_elements<Back::no>(
      const_cast<void*>(values), type, count, [&]<class T>(const T* at, std::size_t some) {
        // Without the sign, floats are ordered as their bits are, and NaN stands above infinity.
        using Bits = BitsOf<T>;
        Bits top = 0;
        for (std::size_t i = 0; i < some; ++i)
          top = std::max(top, static_cast<Bits>(std::bit_cast<Bits>(at[i]) << 1));
        const auto found = static_cast<double>(std::bit_cast<T>(static_cast<Bits>(top >> 1)));
        if (!(found <= most)) most = std::isnan(most) ? most : found;
      });
  return most;
}

}  // namespace acc::runtime::training
