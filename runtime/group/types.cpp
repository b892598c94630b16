#include "common/enum_names.hpp"

#include <acc/error.hpp>
#include <acc/types.hpp>
#include <algorithm>
#include <bit>
#include <cstddef>
#include <limits>

namespace acc::runtime {

std::string_view to_string(ErrorCode code) noexcept {
  static constexpr EnumNames<ErrorCode, ErrorCode::nccl> kNames{
      {"timed_out", "peer_lost", "mismatch", "aborted", "invalid_argument", "system", "corrupt",
       "cuda", "nccl"}};
  return kNames[code];
}

std::string_view to_string(DType type) noexcept {
  static constexpr EnumNames<DType, DType::bf16> kNames{
      {"i8", "u8", "i32", "u32", "i64", "u64", "f16", "f32", "f64", "bf16"}};
  return kNames[type];
}

std::string_view to_string(ReduceOp op) noexcept {
  static constexpr EnumNames<ReduceOp, ReduceOp::avg> kNames{{"sum", "prod", "max", "min", "avg"}};
  return kNames[op];
}

// ---- half precision ----

Half::Half(float value) noexcept {
  constexpr std::uint32_t kInfinity = 0x7f800000;     // of float
  constexpr std::uint32_t kTooLarge = 0x477ff000;     // 65520: the first that rounds to infinity
  constexpr std::uint32_t kLeastNormal = 0x38800000;  // 2^-14
  const auto all = std::bit_cast<std::uint32_t>(value);
  const auto sign = static_cast<std::uint16_t>((all >> 16) & 0x8000U);
  std::uint32_t magnitude = all & 0x7fffffffU;
  std::uint32_t made = 0;
  if (magnitude > kInfinity) {
    made = 0x7e00U | ((magnitude >> 13) & 0x3ffU);  // quiet, with what fits of the payload
  } else if (magnitude >= kTooLarge) {
    made = 0x7c00U;
  } else if (magnitude < kLeastNormal) {
    // 0.5 has its last mantissa bit at 2^-24, the step of the subnormal halves: the addition
    // rounds.
    made = std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude) + 0.5F) -
           std::bit_cast<std::uint32_t>(0.5F);
  } else {
    const std::uint32_t odd = (magnitude >> 13) & 1U;
    magnitude += 0xfffU + odd;                        // to nearest even
    made = (magnitude >> 13) - ((127U - 15U) << 10);  // the other bias of the exponent
  }
  bits = static_cast<std::uint16_t>(sign | made);
}

Half::operator float() const noexcept {
  const std::uint32_t sign = static_cast<std::uint32_t>(bits & 0x8000U) << 16;
  const std::uint32_t exponent = (bits >> 10) & 0x1fU;
  const std::uint32_t mantissa = bits & 0x3ffU;
  if (exponent == 0) {
    const float magnitude = static_cast<float>(mantissa) * 0x1p-24F;
    return std::bit_cast<float>(sign | std::bit_cast<std::uint32_t>(magnitude));
  }
  const std::uint32_t wide = exponent == 0x1fU ? 0xffU : exponent + (127U - 15U);
  return std::bit_cast<float>(sign | (wide << 23) | (mantissa << 13));
}

BFloat16::BFloat16(float value) noexcept {
  const auto all = std::bit_cast<std::uint32_t>(value);
  if ((all & 0x7fffffffU) > 0x7f800000U) {
    bits = static_cast<std::uint16_t>((all >> 16) | 0x40U);  // quiet: a cut payload may be zero
    return;
  }
  const std::uint32_t odd = (all >> 16) & 1U;
  bits = static_cast<std::uint16_t>((all + 0x7fffU + odd) >> 16);
}

BFloat16::operator float() const noexcept {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}

// ---- devices and shapes ----

std::string to_string(const Device& device) {
  if (device.kind == Device::Kind::cpu) return "cpu";
  return "cuda:" + std::to_string(device.index);
}

std::size_t count_of(const Shape& shape) noexcept {
  if (std::ranges::any_of(shape, [](auto extent) { return extent <= 0; })) return 0;
  std::size_t count = 1;
  for (const auto extent : shape)
    if (__builtin_mul_overflow(count, static_cast<std::size_t>(extent), &count))
      return std::numeric_limits<std::size_t>::max();
  return count;
}

void detail::require_countable(DType type, const Shape& shape) {
  const auto refuse = [&](const char* why) {
    throw Error{ErrorCode::invalid_argument, "a tensor of shape " + to_string(shape) + why};
  };
  if (std::ranges::any_of(shape, [](auto extent) { return extent < 0; }))
    refuse(": an extent is negative");
  constexpr auto kMost = static_cast<std::size_t>(std::numeric_limits<std::ptrdiff_t>::max());
  if (count_of(shape) > kMost / size_of(type)) refuse(" has more bytes than a process can have");
}

HostTensor::HostTensor(DType type, Shape shape) : dtype_{type}, shape_{std::move(shape)} {
  detail::require_countable(dtype_, shape_);
  bytes_.resize(count_of(shape_) * size_of(dtype_));
}

void detail::refuse_type(DType held, DType asked) {
  throw Error{ErrorCode::invalid_argument, "a tensor of " + std::string{to_string(held)} +
                                               " was asked for elements of " +
                                               std::string{to_string(asked)}};
}

void detail::refuse_shape(const Shape& shape, std::size_t elements) {
  throw Error{ErrorCode::invalid_argument, "a tensor of shape " + to_string(shape) + " from " +
                                               std::to_string(elements) + " elements"};
}

std::string to_string(const Shape& shape) {
  std::string text = "[";
  for (const auto extent : shape) {
    if (text.size() > 1) text += ", ";
    text += std::to_string(extent);
  }
  return text + "]";
}

}  // namespace acc::runtime
