#pragma once

#include "runtime/backend.hpp"

#include <cstddef>
#include <span>

namespace acc::testing {

/// to[i] = the reduction of from[0][i], from[1][i], … in this order: f16 and bf16 in float with one
/// rounding at the end, all others in their own type (integers wrap around); avg divides the sum by
/// the number of inputs, integers truncating. `to` may be one of `from`.
void reference_reduce(std::span<const void* const> from, void* to, std::size_t count,
                      runtime::DType type, runtime::ReduceOp op);

}  // namespace acc::testing
