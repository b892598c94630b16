#pragma once

#include <acc/types.hpp>
#include <cstddef>

/// Element-wise reductions, vectorized for the processor's instruction set. Buffers may have any
/// alignment; an output may be one of the inputs, but must not overlap one otherwise.
namespace acc::runtime {

/// Kernels of one type and reduction. f16 and bf16 are summed up in float and rounded once, the
/// others in their own type; integers wrap. A NaN is the greatest and the least of its set.
struct Reduction {
  /// out[i] = inputs[0][i] ∘ inputs[1][i] ∘ …, in this order; `ranks` divides an avg. `also`: a
  /// second output, or nullptr.
  void (*all)(void* out, void* also, const void* const* inputs, int number, std::size_t count,
              int ranks);
  // The same in steps, where inputs arrive one by one. The partial result has `partial_type`.
  void (*begin)(void* partial, const void* input, std::size_t count);
  void (*add)(void* partial, const void* input, std::size_t count);
  void (*add_partial)(void* partial, const void* other, std::size_t count);
  void (*finish)(void* out, const void* partial, std::size_t count, int ranks);
};

/// The kernels for this processor.
[[nodiscard]] const Reduction& reduction(DType type, ReduceOp op) noexcept;

/// Type of partial results: f32 for f16 and bf16, else the type itself.
[[nodiscard]] constexpr DType partial_type(DType type) noexcept {
  return type == DType::f16 || type == DType::bf16 ? DType::f32 : type;
}

}  // namespace acc::runtime
