#pragma once

#include <acc/types.hpp>
#include <cstddef>

/// Loops over the elements of one tensor of a floating type, in host memory. 16 bits are worked on
/// as floats and rounded to nearest even.
namespace acc::runtime::training {

/// values *= factor (f64: in double, else in float). @return were all finite before?
bool scale(void* values, DType type, std::size_t count, double factor);
/// Each into [-limit, limit]; NaN stays.
void clamp(void* values, DType type, std::size_t count, double limit);
/// The largest magnitude; NaN if there is one.
[[nodiscard]] double largest(const void* values, DType type, std::size_t count);

}  // namespace acc::runtime::training
