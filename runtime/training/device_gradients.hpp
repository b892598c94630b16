#pragma once

#include "runtime/training/exact_squares.hpp"
#include "runtime/training/gradients.hpp"

#include <string_view>
#include <vector>

/// The part of passes over gradients that is in device memory: enqueued on Gradients::stream, with
/// one wait for what was found. Pieces in host memory are left alone.
namespace acc::runtime::training {

[[nodiscard]] bool in_device_memory(const TensorView& piece) noexcept;
/// @throws Error cuda: some are in device memory, and this build has no kernels
void require_kernels_for(const Gradients& gradients, std::string_view what);

/// @return were all finite before?
bool scale_on_devices(const Gradients& gradients, double factor);
void clamp_on_devices(const Gradients& gradients, double limit);
/// By range, the largest magnitude, NaN if there is one; 0 of those in host memory.
[[nodiscard]] std::vector<double> largest_on_devices(const Gradients& gradients);
void add_squares_on_devices(const Gradients& gradients, ExactSquares& squares);

}  // namespace acc::runtime::training
