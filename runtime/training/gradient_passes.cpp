#include "runtime/training/gradient_passes.hpp"

#include "runtime/training/device_gradients.hpp"
#include "runtime/training/element_kernels.hpp"

#include <cmath>

namespace acc::runtime::training {

void require_reachable(const Gradients& gradients, std::string_view what) {
  gradients.require_memory(what);
  require_kernels_for(gradients, what);
}

std::string first_not_finite(const Gradients& gradients) {
  const auto of_ranges = largest(gradients);
  for (std::size_t i = 0; i < of_ranges.size(); ++i)
    if (!std::isfinite(of_ranges[i]))
      return gradients.parameters[gradients.ranges[i].parameter].name;
  return {};
}

bool scale(const Gradients& gradients, double factor) {
  if (gradients.reducer != nullptr) gradients.reducer->part_changed();
  bool finite = scale_on_devices(gradients, factor);
  for (const GradientRange& range : gradients.ranges) {
    const TensorView piece = gradients.piece(range);
    if (!in_device_memory(piece)) finite &= scale(piece.data, piece.dtype, piece.count(), factor);
  }
  return finite;
}

void clamp(const Gradients& gradients, double limit) {
  if (gradients.reducer != nullptr) gradients.reducer->part_changed();
  clamp_on_devices(gradients, limit);
  for (const GradientRange& range : gradients.ranges) {
    const TensorView piece = gradients.piece(range);
    if (!in_device_memory(piece)) clamp(piece.data, piece.dtype, piece.count(), limit);
  }
}

std::vector<double> largest(const Gradients& gradients) {
  std::vector<double> found = largest_on_devices(gradients);
  for (std::size_t i = 0; i < found.size(); ++i) {
    const TensorView piece = gradients.piece(gradients.ranges[i]);
    if (!in_device_memory(piece)) found[i] = largest(piece.data, piece.dtype, piece.count());
  }
  return found;
}

}  // namespace acc::runtime::training
