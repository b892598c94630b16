#pragma once

#include <acc/types.hpp>
#include <cstddef>
#include <span>
#include <string>
#include <vector>

namespace acc::runtime {

/// A trained tensor and its gradient, which has the same type, shape and device.
struct Parameter {
  std::string name = {};     ///< for messages and checkpoints; the same on every rank, used once
  TensorView value = {};     ///< f16, bf16, f32 or f64
  TensorView gradient = {};  ///< no data: a GradientReducer finds the place for it
};

/// What a model holds besides parameters: running means and their like.
struct ModelBuffer {
  std::string name = {};
  TensorView value = {};
};

/// A stretch of a parameter whose gradient this rank answers for: all of it, or with sharded
/// gradients what lies in this rank's part.
struct GradientRange {
  std::size_t parameter = 0;  ///< index
  std::size_t offset = 0;     ///< elements, in the parameter as one row
  std::size_t count = 0;      ///< elements
  std::size_t bucket = 0;     ///< of the reducer; ranges stand in the order of buckets
};

/// All of every parameter.
[[nodiscard]] std::vector<GradientRange> whole_ranges(std::span<const Parameter> parameters);

}  // namespace acc::runtime

namespace acc {
using runtime::ModelBuffer;
using runtime::Parameter;
}  // namespace acc
