#include "runtime/checkpoint/host_state.hpp"

#include "common/text.hpp"
#include "runtime/checkpoint/manifest.hpp"
#include "runtime/checkpoint/safetensors_format.hpp"

#include <acc/cuda.hpp>
#include <acc/error.hpp>
#include <algorithm>
#include <cstring>
#include <set>
#include <string_view>
#include <utility>

namespace acc::runtime::checkpoint {
namespace {

void check(const StateTensor& tensor) {
  const auto who = "tensor '" + printable(tensor.name) + "'";
  const auto refuse = [&](const std::string& what) {
    throw Error{ErrorCode::invalid_argument, who + what};
  };
  const auto is_plain = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '-';
  };
  if (tensor.part.empty() || !std::ranges::all_of(tensor.part, is_plain)) {
    refuse(": its part '" + printable(tensor.part) + "' can't be in the name of a file");
  }
  const auto& shape = tensor.view.shape;
  if (std::ranges::any_of(shape, [](auto extent) { return extent < 0; })) {
    refuse(" has the shape " + to_string(shape));
  }
  if (const auto problem = safetensors::overflow(tensor.view)) refuse(*problem);
  if (tensor.placement == Placement::sharded && shape.empty()) {
    refuse(" is a scalar: it can't be in pieces");
  }
  if (tensor.view.data == nullptr && tensor.view.bytes() > 0) refuse(" has no memory");
}

/// Steps may be pending on streams that the copies don't wait for, as PyTorch's.
void wait_for_devices(const CheckpointState& state) {
  std::set<int> indices;
  for (const auto& tensor : state.tensors) {
    const Device& device = tensor.view.device;
    if (device.kind == Device::Kind::cuda && indices.insert(device.index).second)
      acc::cuda::synchronize(device);
  }
}

}  // namespace

HostState Snapshot::take(const CheckpointState& state, int rank, bool copy) {
  std::set<std::pair<std::string_view, std::string_view>> names;
  for (const auto& tensor : state.tensors) {
    check(tensor);
    if (!names.emplace(tensor.part, tensor.name).second) {
      throw Error{ErrorCode::invalid_argument, "tensor '" + printable(tensor.name) +
                                                   "' is twice in the part '" + tensor.part + "'"};
    }
  }
  wait_for_devices(state);
  HostState host;
  if (rank == 0 && !state.shared.empty()) host.shared = join_texts(state.shared);
  if (!state.per_rank.empty()) host.per_rank = join_texts(state.per_rank);
  for (const auto& tensor : state.tensors) {
    if (tensor.placement == Placement::replicated && rank != 0) continue;
    auto& taken = host.tensors.emplace_back(tensor);
    if (!copy && tensor.view.device.kind == Device::Kind::cpu) continue;
    taken.view.data = copy_of(tensor.view, host.tensors.size() - 1);
    taken.view.device = {};
  }
  return host;
}

void* Snapshot::copy_of(const TensorView& view, std::size_t number) {
  if (copies_.size() <= number) copies_.resize(number + 1);
  auto& kept = copies_[number];
  const auto bytes = view.bytes();
  if (kept.bytes < bytes) {
    kept = {};  // not both at once
    kept = {std::make_unique_for_overwrite<std::byte[]>(bytes), bytes};
  }
  if (bytes == 0) return kept.data.get();
  if (view.device.kind == Device::Kind::cpu) {
    std::memcpy(kept.data.get(), view.data, bytes);
  } else {
    acc::cuda::copy(kept.data.get(), view.data, bytes);
  }
  return kept.data.get();
}

}  // namespace acc::runtime::checkpoint
