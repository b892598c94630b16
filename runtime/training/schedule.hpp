#pragma once

#include <acc/scheduler.hpp>
#include <cstdint>

namespace acc::runtime::training {

/// Where a one-cycle schedule stands after `step` steps.
struct OneCyclePoint {
  double learning_rate = 0;
  double momentum = 0;
};
/// @param max_rate  of the group
[[nodiscard]] OneCyclePoint one_cycle(const OneCycleOptions& options, double max_rate,
                                      std::uint64_t step);

}  // namespace acc::runtime::training
