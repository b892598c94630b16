#pragma once

#include <acc/error.hpp>
#include <acc/parameter.hpp>
#include <acc/types.hpp>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

/// Views of libtorch's tensors, for programs that use it. This header includes nothing of torch's,
/// so it goes with any version of it: include
/// <torch/torch.h> yourself.
namespace acc::torch {

template <class T>
concept Tensor = requires(const T& tensor) {
  tensor.data_ptr();
  tensor.scalar_type();
  tensor.sizes();
  tensor.is_contiguous();
  tensor.is_cuda();
  tensor.get_device();
};

/// By the numbers of c10::ScalarType, which are a part of torch's file format and don't change.
/// @throws Error invalid_argument: a type that collectives can't carry
[[nodiscard]] inline runtime::DType dtype_of(int scalar_type) {
  using runtime::DType;
  switch (scalar_type) {
    case 0:
      return DType::u8;
    case 1:
      return DType::i8;
    case 3:
      return DType::i32;
    case 4:
      return DType::i64;
    case 5:
      return DType::f16;
    case 6:
      return DType::f32;
    case 7:
      return DType::f64;
    case 15:
      return DType::bf16;
    default:
      throw runtime::Error{runtime::ErrorCode::invalid_argument,
                           "a torch tensor of scalar type " + std::to_string(scalar_type) +
                               ": collectives carry u8, i8, i32, i64, f16, bf16, f32 and f64"};
  }
}

/// The memory stays the tensor's, which must outlive the view.
/// @throws Error invalid_argument: not contiguous, or of a type as above
template <Tensor T>
[[nodiscard]] runtime::TensorView view(const T& tensor) {
  if (!tensor.is_contiguous())
    throw runtime::Error{runtime::ErrorCode::invalid_argument,
                         "a torch tensor isn't contiguous: call contiguous() and keep the result"};
  runtime::TensorView made;
  made.data = const_cast<void*>(static_cast<const void*>(tensor.data_ptr()));
  made.dtype = dtype_of(static_cast<int>(tensor.scalar_type()));
  for (const std::int64_t extent : tensor.sizes()) made.shape.push_back(extent);
  if (tensor.is_cuda())
    made.device = {runtime::Device::Kind::cuda, static_cast<int>(tensor.get_device())};
  return made;
}

/// The parameters of a torch::nn::Module, for a GradientReducer or an optimizer. Gradients that
/// aren't there yet are made, as zeros: from then on they must be zeroed, not freed
/// (zero_grad(false)), as their memory is known by its address.
template <class Module>
[[nodiscard]] std::vector<runtime::Parameter> parameters_of(Module& module) {
  std::vector<runtime::Parameter> parameters;
  for (auto& item : module.named_parameters()) {
    auto& tensor = item.value();
    if (!tensor.requires_grad()) continue;
    if (!tensor.grad().defined()) tensor.mutable_grad() = tensor.new_zeros(tensor.sizes());
    parameters.push_back({item.key(), view(tensor), view(tensor.grad())});
  }
  return parameters;
}

/// Its buffers (running means and their like), for ReducerOptions.
template <class Module>
[[nodiscard]] std::vector<runtime::ModelBuffer> buffers_of(Module& module) {
  std::vector<runtime::ModelBuffer> buffers;
  for (auto& item : module.named_buffers()) buffers.push_back({item.key(), view(item.value())});
  return buffers;
}

}  // namespace acc::torch
