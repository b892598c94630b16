#pragma once

// Included by one source file for each instruction set, with ACC_REDUCE_ISA as the name of its
// namespace and the compiler's switches set for that file. Everything here must be in that
// namespace, and nothing may come from <algorithm> and the like: the linker could pick the copy of
// an inline function that was compiled for a newer processor.
#include "runtime/shm/reduce.hpp"

#include <cstddef>
#include <cstdint>

#if defined(__aarch64__)
#include <arm_neon.h>
#endif

namespace acc::runtime::ACC_REDUCE_ISA {
namespace {

// Users' buffers may be unaligned, and written as other types.
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

// Without branches, so that the compiler can vectorize it.
struct F16 {
  using Stored = std::uint16_t;
  using Partial = float;
  static constexpr Bits kRebias = Bits{127 - 15} << 23;
  static float read(std::uint16_t half) {
    const Bits exponent = half & 0x7c00u;
    const Bits shifted = Bits{half & 0x7fffu} << 13;
    const Bits normal = shifted + kRebias;
    const Bits special = normal + kRebias;  // infinity and NaN
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
// A NaN of any rank propagates: it must not be hidden that one rank's loss is not a number.
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

// Finishes a sum.
template <class Type>
struct AsIs {
  using Partial = typename Type::Partial;
  static Partial of(Partial sum, int) { return sum; }
};
template <class Type>
struct Mean {
  using Partial = typename Type::Partial;
  static Partial of(Partial sum, int ranks) {
    if constexpr (sizeof(Partial) == 1)
      return static_cast<Partial>(sum / ranks);  // 200: no int8
    else
      return static_cast<Partial>(sum / static_cast<Partial>(ranks));
  }
};

template <class Type, class Op>
struct Loops {
  using Stored = At<typename Type::Stored>;
  using Partial = At<typename Type::Partial>;
  using Value = typename Type::Partial;

  static void begin(void* partial, const void* input, std::size_t count) {
    auto* p = static_cast<Partial*>(partial);
    const auto* a = static_cast<const Stored*>(input);
#pragma GCC ivdep
    for (std::size_t i = 0; i < count; ++i) p[i] = Type::read(a[i]);
  }
  static void add_partial(void* partial, const void* other, std::size_t count) {
    auto* p = static_cast<Partial*>(partial);
    const auto* a = static_cast<const Partial*>(other);
#pragma GCC ivdep
    for (std::size_t i = 0; i < count; ++i) p[i] = Op::template of<Value>(p[i], a[i]);
  }

  // Reduces up to four inputs in their order. One input at a time, with partial sums in memory,
  // takes four times as long (measured with 8 inputs): the sums must stay in registers.
  template <int kInputs>
  static Value sum(const Stored* a, const Stored* b, const Stored* c, const Stored* d,
                   std::size_t i) {
    Value value = Type::read(a[i]);
    if constexpr (kInputs > 1) value = Op::template of<Value>(value, Type::read(b[i]));
    if constexpr (kInputs > 2) value = Op::template of<Value>(value, Type::read(c[i]));
    if constexpr (kInputs > 3) value = Op::template of<Value>(value, Type::read(d[i]));
    return value;
  }
  template <int kInputs>
  static Value sum(Value value, const Stored* a, const Stored* b, const Stored* c, const Stored* d,
                   std::size_t i) {
    value = Op::template of<Value>(value, Type::read(a[i]));
    if constexpr (kInputs > 1) value = Op::template of<Value>(value, Type::read(b[i]));
    if constexpr (kInputs > 2) value = Op::template of<Value>(value, Type::read(c[i]));
    if constexpr (kInputs > 3) value = Op::template of<Value>(value, Type::read(d[i]));
    return value;
  }
  struct Four {
    const Stored *a, *b, *c, *d;
    Four(const void* const* inputs, std::size_t at, int number)
        : a{one(inputs, at, 0)},
          b{number > 1 ? one(inputs, at, 1) : nullptr},
          c{number > 2 ? one(inputs, at, 2) : nullptr},
          d{number > 3 ? one(inputs, at, 3) : nullptr} {}
    static const Stored* one(const void* const* inputs, std::size_t at, int k) {
      return reinterpret_cast<const Stored*>(static_cast<const char*>(inputs[k]) + at);
    }
  };
  template <int kInputs>
  static void first(void* partial, const Four& in, std::size_t count) {
    auto* p = static_cast<Partial*>(partial);
    const auto [a, b, c, d] = in;
#pragma GCC ivdep
    for (std::size_t i = 0; i < count; ++i) p[i] = sum<kInputs>(a, b, c, d, i);
  }
  template <int kInputs>
  static void next(void* partial, const Four& in, std::size_t count) {
    auto* p = static_cast<Partial*>(partial);
    const auto [a, b, c, d] = in;
#pragma GCC ivdep
    for (std::size_t i = 0; i < count; ++i) p[i] = sum<kInputs>(Value{p[i]}, a, b, c, d, i);
  }
  template <int kInputs, class End>
  static void only(void* out, const Four& in, std::size_t count, int ranks) {
    auto* o = static_cast<Stored*>(out);
    const auto [a, b, c, d] = in;
#pragma GCC ivdep
    for (std::size_t i = 0; i < count; ++i)
      o[i] = Type::write(End::of(sum<kInputs>(a, b, c, d, i), ranks));
  }
  template <int kInputs, class End>
  static void last(void* out, const void* partial, const Four& in, std::size_t count, int ranks) {
    auto* o = static_cast<Stored*>(out);
    const auto* p = static_cast<const Partial*>(partial);
    const auto [a, b, c, d] = in;
#pragma GCC ivdep
    for (std::size_t i = 0; i < count; ++i)
      o[i] = Type::write(End::of(sum<kInputs>(Value{p[i]}, a, b, c, d, i), ranks));
  }
  static void add(void* partial, const void* input, std::size_t count) {
    next<1>(partial, Four{&input, 0, 1}, count);
  }
  template <class End>
  static void finish(void* out, const void* partial, std::size_t count, int ranks) {
    auto* o = static_cast<Stored*>(out);
    const auto* p = static_cast<const Partial*>(partial);
#pragma GCC ivdep
    for (std::size_t i = 0; i < count; ++i) o[i] = Type::write(End::of(p[i], ranks));
  }
};

#if defined(__aarch64__)
// ---- f16 on aarch64: FCVTL and FCVTN convert four at once; the compiler doesn't find them ----

struct OneHalf : F16 {};  ///< of the elements behind the last four

template <class Op>
struct Loops<F16, Op> {
  using Rest = Loops<OneHalf, Op>;
  using Stored = typename Rest::Stored;
  using Partial = typename Rest::Partial;
  using Four = typename Rest::Four;
  using Lanes = float32x4_t;
  static constexpr std::size_t kLanes = 4;

  static Lanes read(const Stored* from) {
    float16x4_t halves;
    __builtin_memcpy(&halves, from, sizeof halves);
    return vcvt_f32_f16(halves);
  }
  static void write(Stored* to, Lanes values) {
    const float16x4_t halves = vcvt_f16_f32(values);
    __builtin_memcpy(to, &halves, sizeof halves);
  }
  static Lanes load(const Partial* from) {
    Lanes values;
    __builtin_memcpy(&values, from, sizeof values);
    return values;
  }
  static void store(Partial* to, Lanes values) { __builtin_memcpy(to, &values, sizeof values); }
  static Lanes end(AsIs<F16>, Lanes sum, int) { return sum; }
  static Lanes end(Mean<F16>, Lanes sum, int ranks) { return sum / static_cast<float>(ranks); }

  static std::size_t whole(std::size_t count) { return count & ~(kLanes - 1); }
  static Four behind(Four in, std::size_t count) {
    in.a += count;
    if (in.b != nullptr) in.b += count;
    if (in.c != nullptr) in.c += count;
    if (in.d != nullptr) in.d += count;
    return in;
  }

  template <int kInputs>
  static Lanes further(Lanes value, const Four& in, std::size_t i) {
    if constexpr (kInputs > 1) value = Op::template of<Lanes>(value, read(in.b + i));
    if constexpr (kInputs > 2) value = Op::template of<Lanes>(value, read(in.c + i));
    if constexpr (kInputs > 3) value = Op::template of<Lanes>(value, read(in.d + i));
    return value;
  }
  template <int kInputs>
  static Lanes sum(const Four& in, std::size_t i) {
    return further<kInputs>(read(in.a + i), in, i);
  }
  template <int kInputs>
  static Lanes sum(Lanes value, const Four& in, std::size_t i) {
    return further<kInputs>(Op::template of<Lanes>(value, read(in.a + i)), in, i);
  }

  static void begin(void* partial, const void* input, std::size_t count) {
    first<1>(partial, Four{&input, 0, 1}, count);
  }
  static void add(void* partial, const void* input, std::size_t count) {
    next<1>(partial, Four{&input, 0, 1}, count);
  }
  static void add_partial(void* partial, const void* other, std::size_t count) {
    Rest::add_partial(partial, other, count);
  }
  template <int kInputs>
  static void first(void* partial, const Four& in, std::size_t count) {
    auto* p = static_cast<Partial*>(partial);
    const std::size_t most = whole(count);
    for (std::size_t i = 0; i < most; i += kLanes) store(p + i, sum<kInputs>(in, i));
    Rest::template first<kInputs>(p + most, behind(in, most), count - most);
  }
  template <int kInputs>
  static void next(void* partial, const Four& in, std::size_t count) {
    auto* p = static_cast<Partial*>(partial);
    const std::size_t most = whole(count);
    for (std::size_t i = 0; i < most; i += kLanes) store(p + i, sum<kInputs>(load(p + i), in, i));
    Rest::template next<kInputs>(p + most, behind(in, most), count - most);
  }
  template <int kInputs, class End>
  static void only(void* out, const Four& in, std::size_t count, int ranks) {
    auto* o = static_cast<Stored*>(out);
    const std::size_t most = whole(count);
    for (std::size_t i = 0; i < most; i += kLanes)
      write(o + i, end(End{}, sum<kInputs>(in, i), ranks));
    Rest::template only<kInputs, End>(o + most, behind(in, most), count - most, ranks);
  }
  template <int kInputs, class End>
  static void last(void* out, const void* partial, const Four& in, std::size_t count, int ranks) {
    auto* o = static_cast<Stored*>(out);
    const auto* p = static_cast<const Partial*>(partial);
    const std::size_t most = whole(count);
    for (std::size_t i = 0; i < most; i += kLanes)
      write(o + i, end(End{}, sum<kInputs>(load(p + i), in, i), ranks));
    Rest::template last<kInputs, End>(o + most, p + most, behind(in, most), count - most, ranks);
  }
  template <class End>
  static void finish(void* out, const void* partial, std::size_t count, int ranks) {
    auto* o = static_cast<Stored*>(out);
    const auto* p = static_cast<const Partial*>(partial);
    const std::size_t most = whole(count);
    for (std::size_t i = 0; i < most; i += kLanes) write(o + i, end(End{}, load(p + i), ranks));
    Rest::template finish<End>(o + most, p + most, count - most, ranks);
  }
};
#endif

constexpr std::size_t kBlock = 4096;  ///< bytes of partial sums: they stay in the first-level cache

template <class Type, class Op, class End>
struct Whole {
  using L = Loops<Type, Op>;
  using Four = typename L::Four;
  using Stored = typename Type::Stored;
  using Partial = typename Type::Partial;

  static void only(void* out, const Four& in, int number, std::size_t count, int ranks) {
    if (number == 1) return L::template only<1, End>(out, in, count, ranks);
    if (number == 2) return L::template only<2, End>(out, in, count, ranks);
    if (number == 3) return L::template only<3, End>(out, in, count, ranks);
    L::template only<4, End>(out, in, count, ranks);
  }
  static void last(void* out, const void* sums, const Four& in, int number, std::size_t count,
                   int ranks) {
    if (number == 1) return L::template last<1, End>(out, sums, in, count, ranks);
    if (number == 2) return L::template last<2, End>(out, sums, in, count, ranks);
    if (number == 3) return L::template last<3, End>(out, sums, in, count, ranks);
    L::template last<4, End>(out, sums, in, count, ranks);
  }
  static void block(char* out, const void* const* inputs, std::size_t at, int number,
                    std::size_t count, int ranks) {
    if (number <= 4) return only(out, Four{inputs, at, number}, number, count, ranks);
    alignas(64) Partial sums[kBlock / sizeof(Partial)];
    L::template first<4>(sums, Four{inputs, at, 4}, count);
    int done = 4;
    for (; number - done > 4; done += 4)
      L::template next<4>(sums, Four{inputs + done, at, 4}, count);
    last(out, sums, Four{inputs + done, at, number - done}, number - done, count, ranks);
  }
  static void all(void* out, void* also, const void* const* inputs, int number, std::size_t count,
                  int ranks) {
    constexpr std::size_t kStep = kBlock / sizeof(Partial);
    for (std::size_t done = 0; done < count; done += kStep) {
      const std::size_t part = count - done < kStep ? count - done : kStep;
      const std::size_t at = done * sizeof(Stored);
      block(static_cast<char*>(out) + at, inputs, at, number, part, ranks);
      if (also != nullptr)
        __builtin_memcpy(static_cast<char*>(also) + at, static_cast<char*>(out) + at,
                         part * sizeof(Stored));
    }
  }
  static constexpr Reduction kTable{&all, &L::begin, &L::add, &L::add_partial,
                                    &L::template finish<End>};
};

template <class Type>
struct OfType {
  using End = AsIs<Type>;
  static constexpr Reduction kOps[] = {Whole<Type, Sum, End>::kTable,
                                       Whole<Type, Product, End>::kTable,
                                       Whole<Type, Max, End>::kTable, Whole<Type, Min, End>::kTable,
                                       Whole<Type, Sum, Mean<Type>>::kTable};
};

}  // namespace

const Reduction& reduction(DType type, ReduceOp op) noexcept {
  static constexpr const Reduction* kTypes[] = {
      OfType<Plain<std::int8_t>>::kOps,
      OfType<Plain<std::uint8_t>>::kOps,
      OfType<Plain<std::int32_t>>::kOps,
      OfType<Plain<std::uint32_t>>::kOps,
      OfType<Plain<std::int64_t>>::kOps,
      OfType<Plain<std::uint64_t>>::kOps,
      OfType<F16>::kOps,
      OfType<Plain<float>>::kOps,
      OfType<Plain<double>>::kOps,
      OfType<Bf16>::kOps,
  };
  return kTypes[static_cast<std::size_t>(type)][static_cast<std::size_t>(op)];
}

}  // namespace acc::runtime::ACC_REDUCE_ISA
