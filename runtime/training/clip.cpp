#include "runtime/training/device_gradients.hpp"
#include "runtime/training/exact_squares.hpp"
#include "runtime/training/gradient_passes.hpp"
#include "runtime/user_call.hpp"

#include <acc/clip.hpp>
#include <acc/error.hpp>
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

namespace acc::runtime {
namespace {

using training::ExactSquares;
using training::Gradients;

/// Adds the ranks' words up, where each has a part. As bytes of objects would do too; on the host
/// a reduction is cheaper.
void add_up(ExactSquares& squares, ProcessGroup* parts_of) {
  if (parts_of == nullptr) return;
  std::vector<std::uint64_t> words = squares.words();
  parts_of->all_reduce(std::span<std::uint64_t>{words});
  squares.set_words(words);
}

ClippedNorm l2_norm(const Gradients& gradients) {
  ClippedNorm found;
  ExactSquares squares{std::ranges::any_of(
      gradients.parameters, [](const Parameter& p) { return p.gradient.dtype == DType::f64; })};
  training::add_squares_on_devices(gradients, squares);
  if (!squares.finite()) found.non_finite = training::first_not_finite(gradients);
  for (const GradientRange& range : gradients.ranges) {
    const TensorView piece = gradients.piece(range);
    if (training::in_device_memory(piece)) continue;
    const bool well = squares.finite();
    squares.add(piece.data, piece.dtype, piece.count());
    if (well && !squares.finite()) found.non_finite = gradients.parameters[range.parameter].name;
  }
  add_up(squares, gradients.parts_of);
  found.norm = static_cast<double>(std::sqrt(squares.total()));
  return found;
}

ClippedNorm max_norm_of(const Gradients& gradients) {
  ClippedNorm found;
  const auto of_ranges = training::largest(gradients);
  for (std::size_t i = 0; i < of_ranges.size(); ++i) {
    const double largest = of_ranges[i];
    if (!std::isfinite(largest) && found.non_finite.empty())
      found.non_finite = gradients.parameters[gradients.ranges[i].parameter].name;
    if (largest > found.norm || std::isnan(largest)) found.norm = largest;
    if (std::isnan(largest)) break;
  }
  if (gradients.parts_of == nullptr) return found;
  // The maximum of NaN depends on the backend, so NaN is reduced separately.
  std::array<double, 2> words{std::isnan(found.norm) ? 0 : found.norm,
                              std::isnan(found.norm) ? 1.0 : 0.0};
  gradients.parts_of->all_reduce(std::span<double>{words}, ReduceOp::max);
  found.norm = words[1] > 0 ? std::numeric_limits<double>::quiet_NaN() : words[0];
  return found;
}

ClippedNorm clip(const Gradients& gradients, double max_norm, Norm norm) {
  if (!(max_norm >= 0))
    throw Error{ErrorCode::invalid_argument,
                "clip_grad_norm: a norm of " + std::to_string(max_norm)};
  training::require_reachable(gradients, "clip_grad_norm");
  ClippedNorm found = norm == Norm::l2 ? l2_norm(gradients) : max_norm_of(gradients);
  if (!found.finite()) return found;
  const double factor = max_norm / (found.norm + 1e-6);
  if (factor >= 1) return found;
  training::scale(gradients, factor);
  found.clipped = true;
  return found;
}

void clip_each(const Gradients& gradients, double limit) {
  if (!(limit >= 0))
    throw Error{ErrorCode::invalid_argument,
                "clip_grad_value: a limit of " + std::to_string(limit)};
  training::require_reachable(gradients, "clip_grad_value");
  training::clamp(gradients, limit);
}

}  // namespace

ClippedNorm clip_grad_norm(std::span<const Parameter> parameters, double max_norm, Norm norm) {
  return clip({parameters, whole_ranges(parameters)}, max_norm, norm);
}

ClippedNorm clip_grad_norm(GradientReducer& reducer, double max_norm, Norm norm) {
  const InUserCall within{UserCall::clip_grad_norm};
  reducer.require_between_backwards("clip_grad_norm");
  return clip(training::gradients_of(reducer), max_norm, norm);
}

ClippedNorm clip_grad_norm(Optimizer& optimizer, double max_norm, Norm norm) {
  const InUserCall within{UserCall::clip_grad_norm};
  training::require_between_backwards(optimizer, "clip_grad_norm");
  return clip(training::gradients_of(optimizer), max_norm, norm);
}

void clip_grad_value(std::span<const Parameter> parameters, double limit) {
  clip_each({parameters, whole_ranges(parameters)}, limit);
}

void clip_grad_value(GradientReducer& reducer, double limit) {
  reducer.require_between_backwards("clip_grad_value");
  clip_each(training::gradients_of(reducer), limit);
}

void clip_grad_value(Optimizer& optimizer, double limit) {
  training::require_between_backwards(optimizer, "clip_grad_value");
  clip_each(training::gradients_of(optimizer), limit);
}

}  // namespace acc::runtime
