#include <acc/split.hpp>
#include <algorithm>
#include <cstring>

namespace acc::runtime {

Split split_between(std::size_t length, int rank, int ranks) noexcept {
  const auto n = static_cast<std::size_t>(ranks);
  const auto r = static_cast<std::size_t>(rank);
  const std::size_t each = length / n;
  const std::size_t extras = length % n;
  Split part;
  part.first = r * each + std::min(r, extras);
  part.last = part.first + each + (r < extras ? 1 : 0);
  part.padding = extras != 0 && r >= extras ? 1 : 0;
  return part;
}

std::size_t length_of(const TensorView& tensor) {
  if (tensor.shape.empty()) {
    throw Error{ErrorCode::invalid_argument,
                "split_between_processes: a scalar can't be split, only shared by all"};
  }
  return static_cast<std::size_t>(tensor.shape[0]);
}

std::size_t length_of(const HostTensor& tensor) {
  return length_of(TensorView{nullptr, tensor.dtype(), tensor.shape()});
}

HostTensor take(const TensorView& tensor, const Split& part, bool apply_padding) {
  if (tensor.device.kind != Device::Kind::cpu) {
    throw Error{ErrorCode::invalid_argument, "split_between_processes: the tensor is on " +
                                                 to_string(tensor.device) +
                                                 ", copy it to host memory first"};
  }
  const std::size_t length = length_of(tensor);
  const std::size_t kept = part.last - part.first;
  const std::size_t padding = apply_padding ? part.padding : 0;
  Shape shape = tensor.shape;
  shape[0] = static_cast<std::int64_t>(kept + padding);
  HostTensor mine{tensor.dtype, std::move(shape)};
  if (mine.bytes().empty()) return mine;
  const std::size_t row = tensor.bytes() / length;
  const auto* const from = static_cast<const std::byte*>(tensor.data);
  std::memcpy(mine.bytes().data(), from + part.first * row, kept * row);
  for (std::size_t i = 0; i < padding; ++i)
    std::memcpy(mine.bytes().data() + (kept + i) * row, from + (length - 1) * row, row);
  return mine;
}

HostTensor take(const HostTensor& tensor, const Split& part, bool apply_padding) {
  // A view has no const form; this one is only read.
  return take(
      TensorView{const_cast<std::byte*>(tensor.bytes().data()), tensor.dtype(), tensor.shape()},
      part, apply_padding);
}

}  // namespace acc::runtime
