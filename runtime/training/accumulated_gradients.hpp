#pragma once

#include <acc/checkpoint.hpp>
#include <acc/parameter.hpp>
#include <acc/types.hpp>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

/// Accumulated gradients in a checkpoint saved within an accumulated step: for each parameter a
/// tensor with a row for each rank, and the state of each reducer as text.
namespace acc::runtime::training {

/// All of its elements as the row of this rank.
[[nodiscard]] TensorView as_row(const TensorView& gradient);

struct AccumulatedGradients {
  std::vector<HostTensor> gradients;  ///< by parameter
  std::string used;                   ///< as GradientReducer::used()
  bool accumulating = false;
};

/// For as many ranks as saved them the row of `rank`; else, for each, the mean of all rows: the
/// mean over the ranks, which is what a step is made of, is the same then but for rounding.
/// @param model  its number among the models
/// @throws Error corrupt; invalid_argument: another model
[[nodiscard]] AccumulatedGradients read_gradients(const Checkpoint& checkpoint,
                                                  const std::string& part, std::size_t model,
                                                  std::span<const Parameter> parameters, int rank,
                                                  int ranks);

/// What a checkpoint has of gradients, by model.
struct SavedGradients {
  bool in_a_step = false;                    ///< saved within an accumulated step
  std::uint64_t of_steps = 0;                ///< batches in one
  std::vector<AccumulatedGradients> models;  ///< empty: there are none for a step of as many
};

}  // namespace acc::runtime::training
