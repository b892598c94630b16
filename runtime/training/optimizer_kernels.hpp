#pragma once

#include <acc/types.hpp>
#include <cstddef>

/// One step over a stretch of elements, each for itself. Types are f32 or f64, and the arithmetic
/// is done in them; host memory.
namespace acc::runtime::training {

struct SgdStep {
  double learning_rate;
  double momentum;
  double dampening;
  double weight_decay;
  bool nesterov;
  bool first;  ///< nothing in the momentum yet
};
/// @param momentum  nullptr: none
void sgd(void* values, const void* gradient, void* momentum, DType type, std::size_t count,
         const SgdStep& step);

struct AdamWStep {
  double learning_rate;
  double beta1;
  double beta2;
  double epsilon;
  double weight_decay;
  double correction1;  ///< 1 - beta1^step
  double correction2;  ///< 1 - beta2^step
};
void adamw(void* values, const void* gradient, void* mean, void* mean_of_squares, DType type,
           std::size_t count, const AdamWStep& step);

}  // namespace acc::runtime::training
