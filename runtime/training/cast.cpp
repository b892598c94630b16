#include "runtime/training/cast.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

namespace acc::runtime::training {
namespace {

constexpr std::size_t kCastBlock = 1024;  ///< elements that go through the stack at a time

std::uint16_t to_bf16(float value) {
  std::uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  const std::uint32_t rounded = (bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16;
  const bool is_nan = (bits & 0x7fffffffU) > 0x7f800000U;
  return static_cast<std::uint16_t>(is_nan ? (bits >> 16) | 0x40U : rounded);
}

void floats_to_bf16(const float* from, std::uint16_t* to, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) to[i] = to_bf16(from[i]);
}

void bf16_to_floats(const std::uint16_t* from, float* to, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint32_t bits = static_cast<std::uint32_t>(from[i]) << 16;
    std::memcpy(to + i, &bits, sizeof bits);
  }
}

void floats_to_f16_slowly(const float* from, std::uint16_t* to, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) to[i] = Half{from[i]}.bits;
}

void f16_to_floats_slowly(const std::uint16_t* from, float* to, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    Half half;
    half.bits = from[i];
    to[i] = static_cast<float>(half);
  }
}

#if defined(__x86_64__)
/// The instructions round as Half does; every server CPU since 2013 has them, but the compiled
/// baseline does not.
bool converts_halves() {
  static const bool has = __builtin_cpu_supports("f16c") && __builtin_cpu_supports("avx");
  return has;
}

__attribute__((target("avx,f16c"))) void floats_to_f16_fast(const float* from, std::uint16_t* to,
                                                            std::size_t count) {
  std::size_t i = 0;
  for (; i + 8 <= count; i += 8)
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to + i),
                     _mm256_cvtps_ph(_mm256_loadu_ps(from + i), _MM_FROUND_TO_NEAREST_INT));
  floats_to_f16_slowly(from + i, to + i, count - i);
}

__attribute__((target("avx,f16c"))) void f16_to_floats_fast(const std::uint16_t* from, float* to,
                                                            std::size_t count) {
  std::size_t i = 0;
  for (; i + 8 <= count; i += 8)
    _mm256_storeu_ps(to + i,
                     _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from + i))));
  f16_to_floats_slowly(from + i, to + i, count - i);
}
#elif defined(__aarch64__)
constexpr bool converts_halves() { return true; }  // as FCVTN and FCVTL, which every aarch64 has

void floats_to_f16_fast(const float* from, std::uint16_t* to, std::size_t count) {
  std::size_t i = 0;
  for (; i + 4 <= count; i += 4)
    vst1_u16(to + i, vreinterpret_u16_f16(vcvt_f16_f32(vld1q_f32(from + i))));
  floats_to_f16_slowly(from + i, to + i, count - i);
}

void f16_to_floats_fast(const std::uint16_t* from, float* to, std::size_t count) {
  std::size_t i = 0;
  for (; i + 4 <= count; i += 4)
    vst1q_f32(to + i, vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(from + i))));
  f16_to_floats_slowly(from + i, to + i, count - i);
}
#else
constexpr bool converts_halves() { return false; }
constexpr auto floats_to_f16_fast = floats_to_f16_slowly;
constexpr auto f16_to_floats_fast = f16_to_floats_slowly;
#endif

void floats_to_16(const float* from, void* to, DType type, std::size_t count) {
  auto* bits = static_cast<std::uint16_t*>(to);
  if (type == DType::bf16) return floats_to_bf16(from, bits, count);
  converts_halves() ? floats_to_f16_fast(from, bits, count)
                    : floats_to_f16_slowly(from, bits, count);
}

void floats_from_16(const void* from, DType type, float* to, std::size_t count) {
  const auto* bits = static_cast<const std::uint16_t*>(from);
  if (type == DType::bf16) return bf16_to_floats(bits, to, count);
  converts_halves() ? f16_to_floats_fast(bits, to, count) : f16_to_floats_slowly(bits, to, count);
}

const std::byte* at(const void* base, DType type, std::size_t index) {
  return static_cast<const std::byte*>(base) + index * size_of(type);
}
std::byte* at(void* base, DType type, std::size_t index) {
  return static_cast<std::byte*>(base) + index * size_of(type);
}

}  // namespace

void narrow(const void* from, DType from_type, void* to, DType to_type, std::size_t count,
            double scale) {
  const auto factor = static_cast<float>(scale);
  std::array<float, kCastBlock> block;
  for (std::size_t done = 0; done < count; done += kCastBlock) {
    const std::size_t some = std::min(kCastBlock, count - done);
    if (from_type == DType::f64) {
      const auto* source = static_cast<const double*>(from) + done;
      for (std::size_t i = 0; i < some; ++i) block[i] = static_cast<float>(source[i] * scale);
    } else {
      const auto* source = static_cast<const float*>(from) + done;
      for (std::size_t i = 0; i < some; ++i) block[i] = source[i] * factor;
    }
    floats_to_16(block.data(), at(to, to_type, done), to_type, some);
  }
}

void widen(const void* from, DType from_type, void* to, DType to_type, std::size_t count) {
  if (to_type == DType::f32) return floats_from_16(from, from_type, static_cast<float*>(to), count);
  std::array<float, kCastBlock> block;
  auto* target = static_cast<double*>(to);
  for (std::size_t done = 0; done < count; done += kCastBlock) {
    const std::size_t some = std::min(kCastBlock, count - done);
    floats_from_16(at(from, from_type, done), from_type, block.data(), some);
    std::copy_n(block.data(), some, target + done);
  }
}

void to_floats(const void* from, DType type, float* to, std::size_t count) {
  if (type == DType::f32) {
    std::copy_n(static_cast<const float*>(from), count, to);
  } else if (type == DType::f64) {
    const auto* source = static_cast<const double*>(from);
    for (std::size_t i = 0; i < count; ++i) to[i] = static_cast<float>(source[i]);
  } else {
    floats_from_16(from, type, to, count);
  }
}

void from_floats(const float* from, void* to, DType type, std::size_t count) {
  if (type == DType::f32) {
    std::copy_n(from, count, static_cast<float*>(to));
  } else if (type == DType::f64) {
    std::copy_n(from, count, static_cast<double*>(to));
  } else {
    floats_to_16(from, to, type, count);
  }
}

}  // namespace acc::runtime::training
