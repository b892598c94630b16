// Included by one source file for each instruction set, with ACC_REDUCE_ISA as the name of its
// namespace and the compiler's switches set for that file. Everything here must be of that namespace
// and nothing may be taken from <algorithm> and its like: the linker would be free to pick the copy of
// an inline function that was compiled for a better processor than the one at hand.
#include "runtime/shm/reduce.hpp"

#include <cstddef>
#include <cstdint>
#if defined(__F16C__)
#include <immintrin.h>
#endif

namespace acc::runtime::ACC_REDUCE_ISA {
namespace {

// Users' buffers may lie at odd addresses, and hold what other types wrote.
template <class T>
struct Loose {
  typedef T type __attribute__((aligned(1), may_alias));  // NOLINT: `using` drops the attributes
};
template <class T>
using At = typename Loose<T>::type;

using Bits = std::uint32_t;
inline float as_float(Bits bits) { return __builtin_bit_cast(float, bits); }
inline Bits as_bits(float value) { return __builtin_bit_cast(Bits, value); }

// ---- how each type is read into what is summed up, and written back ----

template <class T>
struct Plain {
  using Stored = T;
  using Partial = T;
  static T read(T value) { return value; }
  static T write(T value) { return value; }
};

struct Bf16 {
  using Stored = std::uint16_t;
  using Partial = float;
  static float read(std::uint16_t bits) { return as_float(Bits{bits} << 16); }
  static std::uint16_t write(float value) {
    const Bits bits = as_bits(value);
    const Bits even = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
    const Bits nan = (bits >> 16) | 0x40;
    return static_cast<std::uint16_t>((bits & 0x7fffffff) > 0x7f800000 ? nan : even);
  }
};

// Without branches, so that the compiler can do many at a time.
struct F16 {
  using Stored = std::uint16_t;
  using Partial = float;
  static constexpr Bits kRebias = Bits{127 - 15} << 23;
  static float read(std::uint16_t half) {
    const Bits exponent = half & 0x7c00u;
    const Bits shifted = Bits{half & 0x7fffu} << 13;
    const Bits normal = shifted + kRebias;
    const Bits special = normal + kRebias;                           // infinity and NaN
    const float small = as_float(normal + (Bits{1} << 23)) - as_float(Bits{113} << 23);
    Bits bits = exponent == 0x7c00u ? special : normal;
    bits = exponent == 0 ? as_bits(small) : bits;
    return as_float(bits | (Bits{half & 0x8000u} << 16));
  }
  static std::uint16_t write(float value) {
    const Bits sign = as_bits(value) & 0x80000000u;
    const Bits bits = as_bits(value) ^ sign;
    constexpr Bits kMagic = Bits{(127 - 15) + (23 - 10) + 1} << 23;  // lines a small one up
    const Bits small = as_bits(as_float(bits) + as_float(kMagic)) - kMagic;
    const Bits normal = (bits - kRebias + 0xfff + ((bits >> 13) & 1)) >> 13;
    const Bits huge = bits > 0x7f800000u ? 0x7e00u : 0x7c00u;
    Bits half = bits < (Bits{113} << 23) ? small : normal;
    half = bits >= (Bits{127 + 16} << 23) ? huge : half;
    return static_cast<std::uint16_t>(half | (sign >> 16));
  }
};

// ---- reductions ----

template <class T>
struct Wrapping {  // signed overflow is undefined, of unsigned int and wider it isn't
  using type = T;
};
template <>
struct Wrapping<std::int8_t> {
  using type = unsigned;
};
template <>
struct Wrapping<std::uint8_t> {
  using type = unsigned;
};
template <>
struct Wrapping<std::int32_t> {
  using type = std::uint32_t;
};
template <>
struct Wrapping<std::int64_t> {
  using type = std::uint64_t;
};

struct Sum {
  template <class T>
  static T of(T a, T b) {
    using W = typename Wrapping<T>::type;
    return static_cast<T>(static_cast<W>(a) + static_cast<W>(b));
  }
};
struct Product {
  template <class T>
  static T of(T a, T b) {
    using W = typename Wrapping<T>::type;
    return static_cast<T>(static_cast<W>(a) * static_cast<W>(b));
  }
};
// A NaN goes through, whoever had it: that one rank's loss is no number must not get lost.
struct Max {
  template <class T>
  static T of(T a, T b) {
    return (b > a) | (b != b) ? b : a;  // NOLINT: b != b is a NaN
  }
};
struct Min {
  template <class T>
  static T of(T a, T b) {
    return (b < a) | (b != b) ? b : a;  // NOLINT
  }
};

// ---- loops; ivdep: an output is an input or doesn't touch it ----

template <class Type, class Op>
struct Loops {
  using Stored = At<typename Type::Stored>;
  using Partial = At<typename Type::Partial>;

  static void begin(void* partial, const void* input, std::size_t count) {
    auto* p = static_cast<Partial*>(partial);
    const auto* a = static_cast<const Stored*>(input);
#pragma GCC ivdep
    for (std::size_t i = 0; i < count; ++i) p[i] = Type::read(a[i]);
  }
  static void add(void* partial, const void* input, std::size_t count) {
    auto* p = static_cast<Partial*>(partial);
    const auto* a = static_cast<const Stored*>(input);
#pragma GCC ivdep
    for (std::size_t i = 0; i < count; ++i)
      p[i] = Op::template of<typename Type::Partial>(p[i], Type::read(a[i]));
  }
  static void add_partial(void* partial, const void* other, std::size_t count) {
    auto* p = static_cast<Partial*>(partial);
    const auto* a = static_cast<const Partial*>(other);
#pragma GCC ivdep
    for (std::size_t i = 0; i < count; ++i)
      p[i] = Op::template of<typename Type::Partial>(p[i], a[i]);
  }
  static void begin_two(void* partial, const void* first, const void* second, std::size_t count) {
    auto* p = static_cast<Partial*>(partial);
    const auto* a = static_cast<const Stored*>(first);
    const auto* b = static_cast<const Stored*>(second);
#pragma GCC ivdep
    for (std::size_t i = 0; i < count; ++i)
      p[i] = Op::template of<typename Type::Partial>(Type::read(a[i]), Type::read(b[i]));
  }
  static void finish(void* out, const void* partial, std::size_t count, int) {
    auto* o = static_cast<Stored*>(out);
    const auto* p = static_cast<const Partial*>(partial);
#pragma GCC ivdep
    for (std::size_t i = 0; i < count; ++i) o[i] = Type::write(p[i]);
  }
  // The last input (`b`) and the end in one: what was summed up leaves the registers only once.
  static void last(void* out, const void* partial, const void* input, std::size_t count) {
    auto* o = static_cast<Stored*>(out);
    const auto* p = static_cast<const Partial*>(partial);
    const auto* b = static_cast<const Stored*>(input);
#pragma GCC ivdep
    for (std::size_t i = 0; i < count; ++i)
      o[i] = Type::write(Op::template of<typename Type::Partial>(p[i], Type::read(b[i])));
  }
  static void last(void* out, void* also, const void* partial, const void* input,
                   std::size_t count) {
    auto* o = static_cast<Stored*>(out);
    auto* o2 = static_cast<Stored*>(also);
    const auto* p = static_cast<const Partial*>(partial);
    const auto* b = static_cast<const Stored*>(input);
#pragma GCC ivdep
    for (std::size_t i = 0; i < count; ++i) {
      const auto sum = Type::write(Op::template of<typename Type::Partial>(p[i], Type::read(b[i])));
      o[i] = sum;
      o2[i] = sum;
    }
  }
};

template <class Type>
void divide(void* partial, std::size_t count, int ranks) {
  auto* p = static_cast<At<typename Type::Partial>*>(partial);
  const auto by = static_cast<typename Type::Partial>(ranks);
  for (std::size_t i = 0; i < count; ++i) p[i] = static_cast<typename Type::Partial>(p[i] / by);
}
// 200 ranks are no int8.
template <class T>
void divide_bytes(void* partial, std::size_t count, int ranks) {
  auto* p = static_cast<At<T>*>(partial);
  for (std::size_t i = 0; i < count; ++i) p[i] = static_cast<T>(p[i] / ranks);
}
template <>
[[maybe_unused]] void divide<Plain<std::int8_t>>(void* partial, std::size_t count, int ranks) {
  divide_bytes<std::int8_t>(partial, count, ranks);
}
template <>
[[maybe_unused]] void divide<Plain<std::uint8_t>>(void* partial, std::size_t count, int ranks) {
  divide_bytes<std::uint8_t>(partial, count, ranks);
}

constexpr std::size_t kBlock = 4096;  ///< bytes of sums so far: they stay in the first cache

template <class Type, class Op, bool kMean>
struct Whole {
  using L = Loops<Type, Op>;
  using Stored = typename Type::Stored;
  using Partial = typename Type::Partial;
  static constexpr bool kSame = sizeof(Stored) == sizeof(Partial);  // nothing is widened

  static void block(char* out, char* also, const void* const* inputs, std::size_t at, int number,
                    std::size_t count, int ranks) {
    const auto input = [&](int k) { return static_cast<const char*>(inputs[k]) + at; };
    alignas(64) Partial sums[kBlock / sizeof(Partial)];
    if (kSame && !kMean && number == 2) {
      if (also == nullptr) return L::last(out, input(0), input(1), count);
      return L::last(out, also, input(0), input(1), count);
    }
    if (number == 1) {
      L::begin(sums, input(0), count);
    } else {
      L::begin_two(sums, input(0), input(1), count);
    }
    const int fused = kMean ? number : number - 1;
    for (int k = 2; k < fused; ++k) L::add(sums, input(k), count);
    if (!kMean && number > 2) {
      if (also == nullptr) return L::last(out, sums, input(number - 1), count);
      return L::last(out, also, sums, input(number - 1), count);
    }
    if (kMean) divide<Type>(sums, count, ranks);
    L::finish(out, sums, count, ranks);
    if (also != nullptr) L::finish(also, sums, count, ranks);
  }
  static void all(void* out, void* also, const void* const* inputs, int number, std::size_t count,
                  int ranks) {
    constexpr std::size_t kStep = kBlock / sizeof(Partial);
    for (std::size_t done = 0; done < count; done += kStep) {
      const std::size_t part = count - done < kStep ? count - done : kStep;
      const std::size_t at = done * sizeof(Stored);
      block(static_cast<char*>(out) + at, also == nullptr ? nullptr : static_cast<char*>(also) + at,
            inputs, at, number, part, ranks);
    }
  }
  static void finish(void* out, const void* partial, std::size_t count, int ranks) {
    if (!kMean) return L::finish(out, partial, count, ranks);
    constexpr std::size_t kStep = kBlock / sizeof(Partial);
    alignas(64) Partial sums[kStep];
    for (std::size_t done = 0; done < count; done += kStep) {
      const std::size_t part = count - done < kStep ? count - done : kStep;
      const char* from = static_cast<const char*>(partial) + done * sizeof(Partial);
      __builtin_memcpy(sums, from, part * sizeof(Partial));
      divide<Type>(sums, part, ranks);
      L::finish(static_cast<char*>(out) + done * sizeof(Stored), sums, part, ranks);
    }
  }
  static constexpr Reduction kTable{&all, &L::begin, &L::add, &L::add_partial, &finish};
};

template <class Type>
struct OfType {
  static constexpr Reduction kOps[] = {
      Whole<Type, Sum, false>::kTable, Whole<Type, Product, false>::kTable,
      Whole<Type, Max, false>::kTable, Whole<Type, Min, false>::kTable,
      Whole<Type, Sum, true>::kTable};
};

}  // namespace

const Reduction& reduction(DType type, ReduceOp op) noexcept {
  static constexpr const Reduction* kTypes[] = {
      OfType<Plain<std::int8_t>>::kOps,   OfType<Plain<std::uint8_t>>::kOps,
      OfType<Plain<std::int32_t>>::kOps,  OfType<Plain<std::uint32_t>>::kOps,
      OfType<Plain<std::int64_t>>::kOps,  OfType<Plain<std::uint64_t>>::kOps,
      OfType<F16>::kOps,                  OfType<Plain<float>>::kOps,
      OfType<Plain<double>>::kOps,        OfType<Bf16>::kOps,
  };
  return kTypes[static_cast<std::size_t>(type)][static_cast<std::size_t>(op)];
}

}  // namespace acc::runtime::ACC_REDUCE_ISA
