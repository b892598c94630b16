#pragma once

#include <acc/types.hpp>
#include <cstddef>

/// Element-wise reductions, vectorized for what the processor can do. Buffers may begin at any
/// address; an output may be one of the inputs, but may not overlap one otherwise.
namespace acc::runtime {

/// Of one type and reduction. f16 and bf16 are summed up in float and rounded once, the others in
/// their own type; integers wrap. A NaN is the greatest and the least of its set.
struct Reduction {
  /// out[i] = inputs[0][i] ∘ inputs[1][i] ∘ …, in this order; `ranks` divides an avg. `also` is a
  /// second place for the same, or nullptr.
  void (*all)(void* out, void* also, const void* const* inputs, int number, std::size_t count,
              int ranks);
  // The same in steps, for who has not all inputs at once. The sum so far is of `partial` type.
  void (*begin)(void* partial, const void* input, std::size_t count);
  void (*add)(void* partial, const void* input, std::size_t count);
  void (*add_partial)(void* partial, const void* other, std::size_t count);
  void (*finish)(void* out, const void* partial, std::size_t count, int ranks);
};

/// For this processor.
[[nodiscard]] const Reduction& reduction(DType type, ReduceOp op) noexcept;

/// What sums so far are kept in: f32 for f16 and bf16, else the type itself.
[[nodiscard]] constexpr DType partial_type(DType type) noexcept {
  return type == DType::f16 || type == DType::bf16 ? DType::f32 : type;
}

}  // namespace acc::runtime
