#include "runtime/training/optimizer_kernels.hpp"

#include <cmath>

namespace acc::runtime::training {
namespace {

enum class Momentum { none, plain, nesterov };

/// The order of operations is torch's; the kind is known when compiling, so that the loop has no
/// branch and is vectorized.
template <class T, Momentum kKind>
void sgd_loop(T* __restrict values, const T* __restrict gradient, T* __restrict momentum,
              std::size_t count, const SgdStep& step) {
  const auto rate = static_cast<T>(step.learning_rate);
  const auto decay = static_cast<T>(step.weight_decay);
  const auto factor = static_cast<T>(step.momentum);
  const auto keep = static_cast<T>(step.first ? 0 : step.momentum);
  const auto take = static_cast<T>(step.first ? 1 : 1 - step.dampening);
  for (std::size_t i = 0; i < count; ++i) {
    T change = gradient[i] + decay * values[i];
    if constexpr (kKind != Momentum::none) {
      momentum[i] = keep * momentum[i] + take * change;
      change = kKind == Momentum::nesterov ? change + factor * momentum[i] : momentum[i];
    }
    values[i] -= rate * change;
  }
}

template <class T>
void adamw_loop(T* __restrict values, const T* __restrict gradient, T* __restrict mean,
                T* __restrict squares, std::size_t count, const AdamWStep& step) {
  const auto shrink = static_cast<T>(1 - step.learning_rate * step.weight_decay);
  const auto beta1 = static_cast<T>(step.beta1);
  const auto beta2 = static_cast<T>(step.beta2);
  const auto rest1 = static_cast<T>(1 - step.beta1);
  const auto rest2 = static_cast<T>(1 - step.beta2);
  const auto epsilon = static_cast<T>(step.epsilon);
  const auto rate = static_cast<T>(step.learning_rate / step.correction1);
  const auto root = static_cast<T>(std::sqrt(step.correction2));
  for (std::size_t i = 0; i < count; ++i) {
    const T g = gradient[i];
    mean[i] = beta1 * mean[i] + rest1 * g;
    squares[i] = beta2 * squares[i] + rest2 * g * g;
    const T width = std::sqrt(squares[i]) / root + epsilon;
    values[i] = values[i] * shrink - rate * (mean[i] / width);
  }
}

template <class T>
void sgd_of(void* values, const void* gradient, void* momentum, std::size_t count,
            const SgdStep& step) {
  auto* at = static_cast<T*>(values);
  const auto* by = static_cast<const T*>(gradient);
  auto* buffer = static_cast<T*>(momentum);
  if (momentum == nullptr) return sgd_loop<T, Momentum::none>(at, by, buffer, count, step);
  step.nesterov ? sgd_loop<T, Momentum::nesterov>(at, by, buffer, count, step)
                : sgd_loop<T, Momentum::plain>(at, by, buffer, count, step);
}

template <class T>
void adamw_of(void* values, const void* gradient, void* mean, void* squares, std::size_t count,
              const AdamWStep& step) {
  adamw_loop(static_cast<T*>(values), static_cast<const T*>(gradient), static_cast<T*>(mean),
             static_cast<T*>(squares), count, step);
}

}  // namespace

void sgd(void* values, const void* gradient, void* momentum, DType type, std::size_t count,
         const SgdStep& step) {
  type == DType::f64 ? sgd_of<double>(values, gradient, momentum, count, step)
                     : sgd_of<float>(values, gradient, momentum, count, step);
}

void adamw(void* values, const void* gradient, void* mean, void* mean_of_squares, DType type,
           std::size_t count, const AdamWStep& step) {
  type == DType::f64 ? adamw_of<double>(values, gradient, mean, mean_of_squares, count, step)
                     : adamw_of<float>(values, gradient, mean, mean_of_squares, count, step);
}

}  // namespace acc::runtime::training
