#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>

/// The kernels as functions of a Machine: on a device its threads share the elements and its
/// atomics are the device's; on the host it is a loop, for tests (tests/support/fake_nccl).
///
/// A Machine has each(count, body): body(i) for the elements that are this block's; table(): 256
/// numbers that the threads of a block share; sync(): of those threads; add, raise, set: atomics.
/// The arithmetic is that of the host's loops (runtime/training), operation by operation and
/// without contraction, so that a step has the same bits on either.
#if defined(__CUDACC__)
#define ACC_BODY __host__ __device__
#else
#define ACC_BODY
#endif

namespace acc::runtime::device {

/// 16-bit floats as storage; the numbers are those of acc::runtime::Half and BFloat16.
struct F16 {
  std::uint16_t bits;
};
struct B16 {
  std::uint16_t bits;
};

namespace body {

using Word = unsigned long long;  ///< 64 bits, as CUDA's atomics want them

template <class To, class From>
ACC_BODY inline To bits_as(From from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  memcpy(&to, &from, sizeof to);
  return to;
}

ACC_BODY inline float load(float value) { return value; }
ACC_BODY inline double load(double value) { return value; }
ACC_BODY inline float load(B16 value) {
  return bits_as<float>(static_cast<std::uint32_t>(value.bits) << 16);
}
ACC_BODY inline float load(F16 value) {
  const std::uint32_t sign = static_cast<std::uint32_t>(value.bits & 0x8000U) << 16;
  const std::uint32_t exponent = (value.bits >> 10) & 0x1fU;
  const std::uint32_t mantissa = value.bits & 0x3ffU;
  if (exponent == 0x1fU) return bits_as<float>(sign | 0x7f800000U | (mantissa << 13));
  if (exponent != 0) return bits_as<float>(sign | ((exponent + 112) << 23) | (mantissa << 13));
  // Subnormal: a multiple of 2^-24, which a float holds exactly.
  const float small = static_cast<float>(mantissa) * 5.9604644775390625e-8F;
  return sign != 0 ? -small : small;
}

ACC_BODY inline void store(float& to, float value) { to = value; }
ACC_BODY inline void store(double& to, double value) { to = value; }
/// To nearest, ties to even; NaN stays one, with its sign and the upper bits of its payload.
ACC_BODY inline void store(B16& to, float value) {
  const auto bits = bits_as<std::uint32_t>(value);
  if ((bits & 0x7fffffffU) > 0x7f800000U) {
    to.bits = static_cast<std::uint16_t>((bits >> 16) | 0x40U);
    return;
  }
  to.bits = static_cast<std::uint16_t>((bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16);
}
ACC_BODY inline void store(F16& to, float value) {
  const auto bits = bits_as<std::uint32_t>(value);
  const auto sign = static_cast<std::uint32_t>((bits >> 16) & 0x8000U);
  const std::uint32_t magnitude = bits & 0x7fffffffU;
  std::uint32_t out = 0;
  if (magnitude > 0x7f800000U) {
    out = 0x7e00U | ((magnitude >> 13) & 0x3ffU);
  } else if (magnitude >= 0x477ff000U) {  // 65520 and above: infinity
    out = 0x7c00U;
  } else if (magnitude < 0x33000001U) {  // 2^-25 and below: zero
    out = 0;
  } else if (magnitude < 0x38800000U) {  // below 2^-14: a multiple of 2^-24
    const std::uint32_t shift = 126 - (magnitude >> 23);
    const std::uint32_t mantissa = (magnitude & 0x7fffffU) | 0x800000U;
    const std::uint32_t rest = mantissa & ((1U << shift) - 1);
    const std::uint32_t half = 1U << (shift - 1);
    out = mantissa >> shift;
    out += rest > half || (rest == half && (out & 1U) != 0) ? 1 : 0;
  } else {
    out = (magnitude - 0x38000000U + 0xfffU + ((magnitude >> 13) & 1U)) >> 13;
  }
  to.bits = static_cast<std::uint16_t>(sign | out);
}

ACC_BODY inline bool is_finite(float value) {
  return (bits_as<std::uint32_t>(value) & 0x7f800000U) != 0x7f800000U;
}
ACC_BODY inline bool is_finite(double value) {
  return (bits_as<Word>(value) & 0x7ff0000000000000ULL) != 0x7ff0000000000000ULL;
}

/// What elements of type T are computed in.
template <class T>
struct ComputedIn {
  using type = float;
};
template <>
struct ComputedIn<double> {
  using type = double;
};
template <class T>
using Computed = typename ComputedIn<T>::type;

// ---- over gradients ----

/// values *= factor; *bad: was one infinite or NaN before?
template <class T>
struct Scale {
  T* values;
  std::size_t count;
  Computed<T> factor;
  unsigned* bad;
};
template <class Machine, class T>
ACC_BODY void run(Machine& machine, const Scale<T>& of) {
  machine.each(of.count, [&](std::size_t i) {
    const auto value = load(of.values[i]);
    if (!is_finite(value) && of.bad != nullptr) machine.set(of.bad);
    store(of.values[i], value * of.factor);
  });
}

/// Each into [-limit, limit]; NaN stays.
template <class T>
struct Clamp {
  T* values;
  std::size_t count;
  Computed<T> limit;
};
template <class Machine, class T>
ACC_BODY void run(Machine& machine, const Clamp<T>& of) {
  machine.each(of.count, [&](std::size_t i) {
    const auto value = load(of.values[i]);
    store(of.values[i], value > of.limit ? of.limit : value < -of.limit ? -of.limit : value);
  });
}

/// The largest magnitude, as the bits of a Computed<T> without its sign: as integers those are
/// ordered as the floats are, with NaN above infinity.
template <class T>
struct Largest {
  const T* values;
  std::size_t count;
  Word* found;
};
template <class Machine, class T>
ACC_BODY void run(Machine& machine, const Largest<T>& of) {
  Word most = 0;
  machine.each(of.count, [&](std::size_t i) {
    const auto value = load(of.values[i]);
    Word bits = 0;
    if constexpr (sizeof(value) == 4)
      bits = bits_as<std::uint32_t>(value) & 0x7fffffffU;
    else
      bits = bits_as<Word>(value) & 0x7fffffffffffffffULL;
    most = bits > most ? bits : most;
  });
  machine.raise(of.found, most);
}

/// Sums of squares without rounding, as runtime/training/exact_squares: by exponent, the squares of
/// the mantissas, which are integers. `words` has for each of 255 exponents the sum of the lower
/// and of the upper halves of sums of 64 bits; then how many infinities and NaNs there were.
inline constexpr std::size_t kFloatBins = 255;
inline constexpr std::size_t kSquareWords = 2 * kFloatBins + 2;
/// A block's sums fit into 64 bits: 2^16 squares of 48.
inline constexpr std::size_t kMostOfBlock = 65535;

template <class T>
struct Squares {
  const T* values;
  std::size_t count;
  Word* words;
};
template <class Machine, class T>
ACC_BODY void run(Machine& machine, const Squares<T>& of) {
  Word* const table = machine.table();
  machine.over_table([&](std::size_t e) { table[e] = 0; });
  machine.sync();
  machine.each(of.count, [&](std::size_t i) {
    const auto bits = bits_as<std::uint32_t>(load(of.values[i]));
    const std::uint32_t exponent = (bits >> 23) & 0xffU;
    if (exponent == 0xffU) {
      const bool is_nan = (bits & 0x7fffffU) != 0;
      machine.add(of.words + 2 * kFloatBins + (is_nan ? 1 : 0), 1);
      return;
    }
    const Word mantissa = (bits & 0x7fffffU) | (exponent != 0 ? 0x800000U : 0U);
    if (mantissa != 0) machine.add_in_block(table + exponent, mantissa * mantissa);
  });
  machine.sync();
  machine.over_table([&](std::size_t e) {
    if (e >= kFloatBins || table[e] == 0) return;
    machine.add(of.words + 2 * e, table[e] & 0xffffffffULL);
    machine.add(of.words + 2 * e + 1, table[e] >> 32);
  });
}

/// Of doubles: by exponent, the four words of 32 bits of a square of 106; then infinities and NaNs.
inline constexpr std::size_t kDoubleBins = 2047;
inline constexpr std::size_t kDoubleSquareWords = 4 * kDoubleBins + 2;
template <class Machine>
ACC_BODY void run(Machine& machine, const Squares<double>& of) {
  machine.each(of.count, [&](std::size_t i) {
    const auto bits = bits_as<Word>(of.values[i]);
    const Word exponent = (bits >> 52) & 0x7ffU;
    if (exponent == 0x7ffU) {
      const bool is_nan = (bits & 0xfffffffffffffULL) != 0;
      machine.add(of.words + 4 * kDoubleBins + (is_nan ? 1 : 0), 1);
      return;
    }
    const Word mantissa = (bits & 0xfffffffffffffULL) | (exponent != 0 ? 1ULL << 52 : 0ULL);
    const Word a = mantissa >> 27, b = mantissa & ((1ULL << 27) - 1);
    const Word cross = 2 * a * b, square_of_a = a * a;  // times 2^27 and 2^54
    Word low = b * b, high = (cross >> 37) + (square_of_a >> 10);
    const Word first = cross << 27, second = square_of_a << 54;
    low += first;
    high += low < first ? 1 : 0;
    low += second;
    high += low < second ? 1 : 0;
    Word* const at = of.words + 4 * exponent;
    machine.add(at, low & 0xffffffffULL);
    machine.add(at + 1, low >> 32);
    machine.add(at + 2, high & 0xffffffffULL);
    machine.add(at + 3, high >> 32);
  });
}

// ---- between types ----

/// T: F16 or B16.
template <class T>
struct Widen {
  const T* from;
  float* to;
  std::size_t count;
};
template <class Machine, class T>
ACC_BODY void run(Machine& machine, const Widen<T>& of) {
  machine.each(of.count, [&](std::size_t i) { of.to[i] = load(of.from[i]); });
}

template <class T>
struct Narrow {
  const float* from;
  T* to;
  std::size_t count;
};
template <class Machine, class T>
ACC_BODY void run(Machine& machine, const Narrow<T>& of) {
  machine.each(of.count, [&](std::size_t i) { store(of.to[i], of.from[i]); });
}

// ---- optimizers: T is float or double ----

template <class T>
struct Sgd {
  T* values;
  const T* gradient;
  T* momentum;  ///< nullptr: none
  std::size_t count;
  T rate, decay, factor, keep, take;
  bool nesterov;
};
template <class Machine, class T>
ACC_BODY void run(Machine& machine, const Sgd<T>& of) {
  machine.each(of.count, [&](std::size_t i) {
    T change = of.gradient[i] + of.decay * of.values[i];
    if (of.momentum != nullptr) {
      const T kept = of.keep * of.momentum[i] + of.take * change;
      of.momentum[i] = kept;
      change = of.nesterov ? change + of.factor * kept : kept;
    }
    of.values[i] -= of.rate * change;
  });
}

template <class T>
struct AdamW {
  T* values;
  const T* gradient;
  T* mean;
  T* squares;
  std::size_t count;
  T shrink, beta1, beta2, rest1, rest2, epsilon, rate, root;
};
template <class Machine, class T>
ACC_BODY void run(Machine& machine, const AdamW<T>& of) {
  machine.each(of.count, [&](std::size_t i) {
    const T g = of.gradient[i];
    const T mean = of.beta1 * of.mean[i] + of.rest1 * g;
    const T squares = of.beta2 * of.squares[i] + of.rest2 * g * g;
    of.mean[i] = mean;
    of.squares[i] = squares;
    const T width = std::sqrt(squares) / of.root + of.epsilon;
    of.values[i] = of.values[i] * of.shrink - of.rate * (mean / width);
  });
}

}  // namespace body

/// X(name, arguments): every kernel. It takes its arguments as one struct.
#define ACC_DEVICE_KERNELS(X)         \
  X(acc_scale_f32, Scale<float>)      \
  X(acc_scale_f64, Scale<double>)     \
  X(acc_scale_f16, Scale<F16>)        \
  X(acc_scale_bf16, Scale<B16>)       \
  X(acc_clamp_f32, Clamp<float>)      \
  X(acc_clamp_f64, Clamp<double>)     \
  X(acc_clamp_f16, Clamp<F16>)        \
  X(acc_clamp_bf16, Clamp<B16>)       \
  X(acc_largest_f32, Largest<float>)  \
  X(acc_largest_f64, Largest<double>) \
  X(acc_largest_f16, Largest<F16>)    \
  X(acc_largest_bf16, Largest<B16>)   \
  X(acc_squares_f32, Squares<float>)  \
  X(acc_squares_f64, Squares<double>) \
  X(acc_squares_f16, Squares<F16>)    \
  X(acc_squares_bf16, Squares<B16>)   \
  X(acc_widen_f16, Widen<F16>)        \
  X(acc_widen_bf16, Widen<B16>)       \
  X(acc_narrow_f16, Narrow<F16>)      \
  X(acc_narrow_bf16, Narrow<B16>)     \
  X(acc_sgd_f32, Sgd<float>)          \
  X(acc_sgd_f64, Sgd<double>)         \
  X(acc_adamw_f32, AdamW<float>)      \
  X(acc_adamw_f64, AdamW<double>)

inline constexpr unsigned kThreads = 256;      ///< of a block
inline constexpr unsigned kMostBlocks = 1024;  ///< of a launch
/// Elements of a launch; with them a block has at most body::kMostOfBlock.
inline constexpr std::size_t kMostOfLaunch = std::size_t{kMostBlocks} * kThreads * 255;
static_assert(kMostOfLaunch / kMostBlocks <= body::kMostOfBlock);

}  // namespace acc::runtime::device
