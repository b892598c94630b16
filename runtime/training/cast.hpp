#pragma once

#include <acc/types.hpp>
#include <cstddef>

namespace acc::runtime::training {

/// to[i] = from[i] * scale as a float, rounded to 16 bits (to nearest even).
/// @param from  f32 or f64.  @param to  f16 or bf16.
void narrow(const void* from, DType from_type, void* to, DType to_type, std::size_t count,
            double scale);

/// to[i] = from[i], which is exact.
/// @param from  f16 or bf16.  @param to  f32 or f64.
void widen(const void* from, DType from_type, void* to, DType to_type, std::size_t count);

/// Floats of `count` elements of any floating type; f64 is rounded.
void to_floats(const void* from, DType type, float* to, std::size_t count);
/// The way back, rounded to nearest even.
void from_floats(const float* from, void* to, DType type, std::size_t count);

}  // namespace acc::runtime::training
