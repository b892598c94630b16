#pragma once

#include "runtime/capi/handles.hpp"

#include <acc/acc_training.h>

#include <acc/gradient_reducer.hpp>
#include <acc/optimizer.hpp>
#include <memory>
#include <optional>

// What the opaque handles of acc_training.h hold.

struct acc_reducer {
  explicit acc_reducer(acc::runtime::GradientReducer made) : reducer{std::move(made)} {}
  acc::runtime::GradientReducer reducer;
  std::optional<acc::runtime::GradientReducer::NoSync> quiet;
};
struct acc_optimizer {
  std::unique_ptr<acc::runtime::Optimizer> optimizer;
};

namespace acc::capi {

/// @throws Error invalid_argument
[[nodiscard]] runtime::TensorView view_of(const acc_parameter& tensor, void* data);
[[nodiscard]] acc_parameter known_parameter(const acc_parameter& tensor);

}  // namespace acc::capi
