#pragma once

#include "runtime/training/gradients.hpp"

#include <string>
#include <string_view>
#include <vector>

/// Passes over the gradients that a rank owns, in host and in device memory.
namespace acc::runtime::training {

/// @throws Error invalid_argument naming the first that is nowhere; cuda: in device memory, and
///   there are no kernels for it
void require_reachable(const Gradients& gradients, std::string_view what);

/// The first parameter whose gradient, as far as it is this rank's, isn't finite; empty: none.
[[nodiscard]] std::string first_not_finite(const Gradients& gradients);

/// Multiplies all by `factor`. @return were all finite before? Of this rank's alone.
bool scale(const Gradients& gradients, double factor);
/// Each element into [-limit, limit]; NaN stays.
void clamp(const Gradients& gradients, double limit);
/// By range, the largest magnitude; NaN if there is one.
[[nodiscard]] std::vector<double> largest(const Gradients& gradients);

}  // namespace acc::runtime::training
