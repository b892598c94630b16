#pragma once

#include <acc/gradient_reducer.hpp>
#include <acc/optimizer.hpp>
#include <acc/process_group.hpp>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "net.hpp"

/// The net of net.hpp as the training loop sees it, on whatever device it computes.
namespace example {

class Model {
 public:
  virtual ~Model() = default;
  /// With memory for their gradients, on the model's device.
  [[nodiscard]] virtual std::vector<acc::Parameter> parameters() = 0;
  /// Adds `factor` times the gradient of these images' mean loss. @return that loss.
  virtual double learn(std::span<const Image> images, double factor) = 0;
  /// @return how many of these images are recognised.
  virtual std::size_t recognised(std::span<const Image> images) = 0;
  /// Stochastic gradient descent where the parameters are.
  [[nodiscard]] virtual std::unique_ptr<acc::Optimizer> make_sgd(acc::GradientReducer& reducer,
                                                                 double learning_rate,
                                                                 double momentum) = 0;
};

/// Where the ranks are to meet for `--device auto`, `cpu` or `cuda`: it decides where the gradients
/// are reduced, and so on which device the model has to be.
/// @throws std::runtime_error one line: what is missing for cuda, and what to do.
[[nodiscard]] acc::runtime::BackendKind backend_for(const std::string& device);

/// The same seed gives the same parameters everywhere.
[[nodiscard]] std::unique_ptr<Model> make_model(const acc::runtime::Device& device,
                                                std::uint64_t seed);
/// In cuda_model.cu, which is a part of the program where the build found CUDA's compiler.
[[nodiscard]] std::unique_ptr<Model> make_cuda_model(const acc::runtime::Device& device,
                                                     std::uint64_t seed);

}  // namespace example
