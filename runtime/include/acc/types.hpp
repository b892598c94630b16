#pragma once

#include <acc/detail/cxx20.hpp>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>  // also the concepts of ranges; <ranges> itself takes the compiler 0.1 s
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

/// Element types, reductions, and views of the caller's memory.
namespace acc::runtime {

/// Numbered as NCCL numbers them.
enum class DType : std::uint8_t { i8, u8, i32, u32, i64, u64, f16, f32, f64, bf16 };
inline constexpr std::size_t kDTypes = 10;

/// Numbered as NCCL numbers them. avg: the sum divided by the number of ranks; for integers it
/// truncates towards zero.
enum class ReduceOp : std::uint8_t { sum, prod, max, min, avg };

[[nodiscard]] constexpr std::size_t size_of(DType type) noexcept {
  constexpr std::uint8_t kSizes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2};
  return kSizes[static_cast<std::size_t>(type)];
}
[[nodiscard]] std::string_view to_string(DType type) noexcept;   ///< "f32"
[[nodiscard]] std::string_view to_string(ReduceOp op) noexcept;  ///< "sum"

/// IEEE 754 binary16 and bfloat16 as storage: arithmetic is done in float.
struct Half {
  std::uint16_t bits = 0;
  Half() = default;
  explicit Half(float value) noexcept;  ///< round to nearest even; too large: infinity
  explicit operator float() const noexcept;
  friend bool operator==(Half, Half) = default;  ///< of the bits
};
struct BFloat16 {
  std::uint16_t bits = 0;
  BFloat16() = default;
  explicit BFloat16(float value) noexcept;  ///< round to nearest even; NaN stays NaN
  explicit operator float() const noexcept;
  friend bool operator==(BFloat16, BFloat16) = default;  ///< of the bits
};

template <class T>
struct DTypeOf;
template <>
struct DTypeOf<std::int8_t> {
  static constexpr auto value = DType::i8;
};
template <>
struct DTypeOf<std::uint8_t> {
  static constexpr auto value = DType::u8;
};
template <>
struct DTypeOf<std::int32_t> {
  static constexpr auto value = DType::i32;
};
template <>
struct DTypeOf<std::uint32_t> {
  static constexpr auto value = DType::u32;
};
template <>
struct DTypeOf<std::int64_t> {
  static constexpr auto value = DType::i64;
};
template <>
struct DTypeOf<std::uint64_t> {
  static constexpr auto value = DType::u64;
};
template <>
struct DTypeOf<Half> {
  static constexpr auto value = DType::f16;
};
template <>
struct DTypeOf<float> {
  static constexpr auto value = DType::f32;
};
template <>
struct DTypeOf<double> {
  static constexpr auto value = DType::f64;
};
template <>
struct DTypeOf<BFloat16> {
  static constexpr auto value = DType::bf16;
};
template <>
struct DTypeOf<std::byte> {
  static constexpr auto value = DType::u8;
};
/// `long` and `long long` have the same 64 bits, and only one of them is std::int64_t.
template <class T>
requires(std::is_same_v<T, long long> || std::is_same_v<T, long>) &&
    (sizeof(T) == 8) struct DTypeOf<T> {
  static constexpr auto value = DType::i64;
};
template <class T>
requires(std::is_same_v<T, unsigned long long> || std::is_same_v<T, unsigned long>) &&
    (sizeof(T) == 8) struct DTypeOf<T> {
  static constexpr auto value = DType::u64;
};

/// A type that collectives can carry.
template <class T>
concept Element = requires {
  DTypeOf<T>::value;
};
template <Element T>
inline constexpr DType dtype_of = DTypeOf<T>::value;

struct Device {
  enum class Kind : std::uint8_t { cpu, cuda };
  Kind kind = Kind::cpu;
  int index = 0;  ///< of the CUDA device as this process sees it
  friend bool operator==(const Device&, const Device&) = default;
};
[[nodiscard]] std::string to_string(const Device& device);  ///< "cpu", "cuda:0"

using Shape = std::vector<std::int64_t>;  ///< outermost first; {} is a scalar
/// Elements of a tensor of this shape; 1 for {}. 0 with a negative extent; the greatest number
/// where they can't be counted.
[[nodiscard]] std::size_t count_of(const Shape& shape) noexcept;
[[nodiscard]] std::string to_string(const Shape& shape);  ///< "[2, 3]"

namespace detail {
/// @throws Error invalid_argument
[[noreturn]] void refuse_type(DType held, DType asked);
[[noreturn]] void refuse_shape(const Shape& shape, std::size_t elements);
/// A negative extent, or more bytes than a process can have, is refused.
void require_countable(DType type, const Shape& shape);

/// Of a range's element, const where it can't be written.
template <class R>
using ElementOf =
    std::remove_reference_t<std::ranges::range_reference_t<std::remove_reference_t<R>&>>;
template <class R>
inline constexpr bool kContiguous = false;
template <class R>
requires std::ranges::contiguous_range < std::remove_reference_t<R>
& > &&std::ranges::sized_range<std::remove_reference_t<R>&> inline constexpr bool kContiguous<R> =
    true;
/// Does the memory outlive the expression? Not that of a temporary vector.
template <class R>
inline constexpr bool kLasts =
    std::is_lvalue_reference_v<R> || std::ranges::borrowed_range<std::remove_cvref_t<R>>;

/// A contiguous range that outlives the expression: a vector, an array, a span.
template <class R>
concept ReadableRange = kContiguous<R> && kLasts<R> && Element<std::remove_cv_t<ElementOf<R>>>;
template <class R>
concept WritableRange = ReadableRange<R> && !std::is_const_v<ElementOf<R>>;
}  // namespace detail

/// A tensor in memory of the caller: contiguous, row-major, at `data`, which outlives the view.
struct TensorView {
  void* data = nullptr;
  DType dtype = DType::f32;
  Shape shape;
  Device device;

  TensorView() = default;
  TensorView(void* at, DType type, Shape extents, Device on = {})
      : data{at}, dtype{type}, shape{std::move(extents)}, device{on} {}
  /// One dimension: of a vector, an array, a span.
  template <detail::WritableRange R>
  TensorView(R&& values)  // NOLINT(google-explicit-constructor): such a range is a tensor
      : data{std::ranges::data(values)},
        dtype{dtype_of<detail::ElementOf<R>>},
        shape{static_cast<std::int64_t>(std::ranges::size(values))} {}
  /// @throws Error invalid_argument  a shape of more or fewer elements
  template <detail::WritableRange R>
  TensorView(R&& values, Shape extents)
      : data{std::ranges::data(values)},
        dtype{dtype_of<detail::ElementOf<R>>},
        shape{std::move(extents)} {
    if (count_of(shape) != std::ranges::size(values))
      detail::refuse_shape(shape, std::ranges::size(values));
  }

  [[nodiscard]] std::size_t count() const noexcept { return count_of(shape); }
  [[nodiscard]] std::size_t bytes() const noexcept { return count() * size_of(dtype); }
};

/// The same of a tensor that is only read. What takes one also takes a TensorView.
struct ConstTensorView {
  const void* data = nullptr;
  DType dtype = DType::f32;
  Shape shape;
  Device device;

  ConstTensorView() = default;
  ConstTensorView(const void* at, DType type, Shape extents, Device on = {})
      : data{at}, dtype{type}, shape{std::move(extents)}, device{on} {}
  ConstTensorView(const TensorView& view)  // NOLINT(google-explicit-constructor)
      : data{view.data}, dtype{view.dtype}, shape{view.shape}, device{view.device} {}
  template <detail::ReadableRange R>
  ConstTensorView(R&& values)  // NOLINT(google-explicit-constructor)
      : data{std::ranges::data(values)},
        dtype{dtype_of<std::remove_const_t<detail::ElementOf<R>>>},
        shape{static_cast<std::int64_t>(std::ranges::size(values))} {}
  /// @throws Error invalid_argument  a shape of more or fewer elements
  template <detail::ReadableRange R>
  ConstTensorView(R&& values, Shape extents)
      : data{std::ranges::data(values)},
        dtype{dtype_of<std::remove_const_t<detail::ElementOf<R>>>},
        shape{std::move(extents)} {
    if (count_of(shape) != std::ranges::size(values))
      detail::refuse_shape(shape, std::ranges::size(values));
  }

  [[nodiscard]] std::size_t count() const noexcept { return count_of(shape); }
  [[nodiscard]] std::size_t bytes() const noexcept { return count() * size_of(dtype); }
};

/// A tensor in host memory that owns its bytes: what gather and its kin return. Not a tensor
/// library: it has a type, a shape and bytes, and no arithmetic.
class HostTensor {
 public:
  HostTensor() = default;
  /// @throws Error invalid_argument  a negative extent, or more bytes than a process can have
  HostTensor(DType type, Shape shape);
  /// @throws Error invalid_argument  a shape of more or fewer elements
  template <Element T>
  static HostTensor of(std::span<const T> values, Shape shape) {
    if (count_of(shape) != values.size()) detail::refuse_shape(shape, values.size());
    HostTensor made{dtype_of<T>, std::move(shape)};
    const auto from = std::as_bytes(values);
    made.bytes_.assign(from.begin(), from.end());
    return made;
  }

  [[nodiscard]] DType dtype() const noexcept { return dtype_; }
  [[nodiscard]] const Shape& shape() const noexcept { return shape_; }
  [[nodiscard]] std::size_t count() const noexcept { return count_of(shape_); }
  [[nodiscard]] std::span<std::byte> bytes() noexcept { return bytes_; }
  [[nodiscard]] std::span<const std::byte> bytes() const noexcept { return bytes_; }
  [[nodiscard]] TensorView view() noexcept { return {bytes_.data(), dtype_, shape_}; }
  [[nodiscard]] ConstTensorView view() const noexcept { return {bytes_.data(), dtype_, shape_}; }
  /// A copy of a vector, an array, a span.
  template <detail::ReadableRange R>
  static HostTensor of(R&& values, Shape shape) {
    using T = const std::remove_const_t<detail::ElementOf<R>>;
    return of(std::span<T>{std::ranges::data(values), std::ranges::size(values)}, std::move(shape));
  }
  /// The elements. @throws Error invalid_argument  they are of another type than T
  template <Element T>
  [[nodiscard]] std::span<T> as() {
    require_type(dtype_of<T>);
    return {reinterpret_cast<T*>(bytes_.data()), bytes_.size() / sizeof(T)};
  }
  template <Element T>
  [[nodiscard]] std::span<const T> as() const {
    require_type(dtype_of<T>);
    return {reinterpret_cast<const T*>(bytes_.data()), bytes_.size() / sizeof(T)};
  }
  friend bool operator==(const HostTensor&, const HostTensor&) = default;

 private:
  void require_type(DType asked) const {
    if (asked != dtype_ && !bytes_.empty()) detail::refuse_type(dtype_, asked);
  }

  DType dtype_ = DType::f32;
  Shape shape_{0};
  std::vector<std::byte> bytes_;
};

}  // namespace acc::runtime

namespace acc {
using runtime::BFloat16;
using runtime::ConstTensorView;
using runtime::Device;
using runtime::DType;
using runtime::Half;
using runtime::HostTensor;
using runtime::Shape;
using runtime::TensorView;
}  // namespace acc
