#pragma once

#include <acc/gradient_reducer.hpp>
#include <acc/optimizer.hpp>
#include <acc/parameter.hpp>
#include <cmath>
#include <cstdint>
#include <span>
#include <string>

namespace acc::runtime {

enum class Norm : std::uint8_t { l2, max };

struct ClippedNorm {
  double norm = 0;  ///< of all gradients together, before clipping; infinite or NaN as they are
  bool clipped = false;  ///< were they scaled down?
  /// The first parameter whose gradient (as far as it is this rank's) has an infinity or NaN.
  std::string non_finite;
  [[nodiscard]] bool finite() const noexcept { return std::isfinite(norm); }
};

/// Scales all gradients by max_norm / (norm + 1e-6) where that is below 1, as torch's
/// clip_grad_norm_; but gradients with an infinity or NaN are left unchanged and reported, where
/// torch makes zeros or NaN of all. The norm is that of the exact sum of squares, so it has the
/// same bits on every rank, sharded or not, on any number of ranks that hold the same gradients,
/// and in host or device memory.
ClippedNorm clip_grad_norm(std::span<const Parameter> parameters, double max_norm,
                           Norm norm = Norm::l2);
/// Of the mean gradients, after finish(), but for those that a step leaves alone
/// (GradientReducer::has_gradient). Where they are scattered, the ranks add up: collective.
ClippedNorm clip_grad_norm(GradientReducer& reducer, double max_norm, Norm norm = Norm::l2);
/// Of all its parameters; of those of a reducer, as above.
ClippedNorm clip_grad_norm(Optimizer& optimizer, double max_norm, Norm norm = Norm::l2);

/// Limits each element to [-limit, limit]; NaN stays.
void clip_grad_value(std::span<const Parameter> parameters, double limit);
void clip_grad_value(GradientReducer& reducer, double limit);
void clip_grad_value(Optimizer& optimizer, double limit);

}  // namespace acc::runtime

namespace acc {
using runtime::clip_grad_norm;
using runtime::clip_grad_value;
using runtime::ClippedNorm;
using runtime::Norm;
}  // namespace acc
