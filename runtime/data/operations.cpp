#include "runtime/with_type.hpp"

#include <acc/error.hpp>
#include <acc/operations.hpp>
#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstring>
#include <limits>

namespace acc::runtime {

namespace {

void require_host(const TensorView& tensor, std::string_view operation) {
  if (tensor.device.kind == Device::Kind::cpu) return;
  throw Error{ErrorCode::invalid_argument, std::string{operation} + ": the tensor is on " +
                                               to_string(tensor.device) +
                                               ", copy it to host memory first"};
}

HostTensor copy_of(const TensorView& tensor) {
  HostTensor copy{tensor.dtype, tensor.shape};
  if (tensor.bytes() != 0) std::memcpy(copy.bytes().data(), tensor.data, tensor.bytes());
  return copy;
}

bool is_floating(DType type) noexcept {
  return type == DType::f16 || type == DType::bf16 || type == DType::f32 || type == DType::f64;
}

template <class T>
void put(std::span<std::byte> element, T value) {
  std::memcpy(element.data(), &value, sizeof value);
}

template <class T>
void put_integer(std::span<std::byte> element, double value) {
  // The upper bound is compared as a power of two: the greatest T itself may have no double.
  if (!(value >= static_cast<double>(std::numeric_limits<T>::min())) ||
      !(value < std::ldexp(1.0, std::numeric_limits<T>::digits)) || value != std::trunc(value)) {
    throw Error{ErrorCode::invalid_argument, "pad_across_processes: a tensor of " +
                                                 std::string{to_string(dtype_of<T>)} +
                                                 " can't be filled with " + std::to_string(value)};
  }
  put(element, static_cast<T>(value));
}

/// The bytes of one element.
std::vector<std::byte> element_of(DType type, double value) {
  std::vector<std::byte> bytes(size_of(type));
  with_type(type, [&](auto zero) {
    using T = decltype(zero);
    if constexpr (std::is_integral_v<T>)
      put_integer<T>(bytes, value);
    else
      put(std::span{bytes}, element_from<T>(value));
  });
  return bytes;
}

/// A list as one string: of each element its length in decimal, a colon, the bytes.
std::string pack(std::span<const std::string> list) {
  std::string packed;
  for (const auto& element : list) {
    packed += std::to_string(element.size());
    packed += ':';
    packed += element;
  }
  return packed;
}

void unpack(std::string_view packed, int rank, std::vector<std::string>& list) {
  while (!packed.empty()) {
    std::size_t length = 0;
    const auto* const end = packed.data() + packed.size();
    const auto [colon, failed] = std::from_chars(packed.data(), end, length);
    if (failed != std::errc{} || colon == end || *colon != ':' ||
        length > static_cast<std::size_t>(end - colon - 1)) {
      throw Error{ErrorCode::mismatch,
                  "gather_object: what rank " + std::to_string(rank) + " sent is not a list",
                  {rank}};
    }
    list.emplace_back(colon + 1, length);
    packed.remove_prefix(static_cast<std::size_t>(colon - packed.data()) + 1 + length);
  }
}

}  // namespace

Reduction parse_reduction(std::string_view word) {
  if (word == "none") return Reduction::none;
  if (word == "sum") return Reduction::sum;
  if (word == "mean") return Reduction::mean;
  throw Error{ErrorCode::invalid_argument,
              "'" + std::string{word} + "' is not a reduction: it is none, sum or mean"};
}

HostTensor gather(ProcessGroup& group, const TensorView& mine) {
  require_host(mine, "gather");
  if (group.size() == 1) return copy_of(mine);
  Shape shape = mine.shape;
  if (shape.empty()) {
    shape = {group.size()};
  } else {
    shape[0] *= group.size();
  }
  HostTensor all{mine.dtype, std::move(shape)};
  group.all_gather(mine.data, all.bytes().data(), mine.count(), mine.dtype);
  return all;
}

HostTensor pad_across_processes(ProcessGroup& group, const TensorView& mine, int dim, double fill,
                                bool fill_first) {
  require_host(mine, "pad_across_processes");
  const int dims = static_cast<int>(mine.shape.size());
  if (dim >= dims || dim < -dims) return copy_of(mine);
  const auto axis = static_cast<std::size_t>(dim < 0 ? dim + dims : dim);
  // Before anything is sent, so that a fill that can't be fails alike whoever is the longest.
  const auto element = element_of(mine.dtype, fill);

  const std::int64_t have = mine.shape[axis];
  std::int64_t want = have;
  group.all_reduce(std::span{&want, 1}, ReduceOp::max);
  if (want == have) return copy_of(mine);

  Shape shape = mine.shape;
  shape[axis] = want;
  HostTensor padded{mine.dtype, shape};
  // Row-major: a block is all that lies under one index of the dimensions before `axis`.
  std::size_t blocks = 1;
  for (std::size_t d = 0; d < axis; ++d) blocks *= static_cast<std::size_t>(shape[d]);
  if (padded.count() == 0) return padded;
  const std::size_t inner = padded.bytes().size() / blocks / static_cast<std::size_t>(want);
  const std::size_t old_block = inner * static_cast<std::size_t>(have);
  const std::size_t gap = inner * static_cast<std::size_t>(want - have);
  std::byte* to = padded.bytes().data();
  const std::byte* from = static_cast<const std::byte*>(mine.data);
  for (std::size_t block = 0; block < blocks; ++block) {
    std::byte* const kept = fill_first ? to + gap : to;
    std::byte* const filled = fill_first ? to : to + old_block;
    if (old_block != 0) std::memcpy(kept, from, old_block);
    for (std::size_t at = 0; at < gap; at += element.size())
      std::memcpy(filled + at, element.data(), element.size());
    to += old_block + gap;
    from += old_block;
  }
  return padded;
}

HostTensor reduce(ProcessGroup& group, const TensorView& mine, Reduction how) {
  require_host(mine, "reduce");
  HostTensor result = copy_of(mine);
  if (group.size() == 1) return result;
  if (how == Reduction::mean && !is_floating(mine.dtype)) {
    throw Error{ErrorCode::invalid_argument,
                "reduce: the mean of " + std::string{to_string(mine.dtype)} +
                    " tensors is not a whole number: sum them, or use a floating type"};
  }
  group.all_reduce(result.bytes().data(), result.bytes().data(), result.count(), result.dtype(),
                   how == Reduction::mean ? ReduceOp::avg : ReduceOp::sum);
  return result;
}

HostTensor broadcast(ProcessGroup& group, const TensorView& mine, int from) {
  require_host(mine, "broadcast");
  HostTensor result = copy_of(mine);
  group.broadcast(result.bytes().data(), result.count(), result.dtype(), from);
  return result;
}

std::vector<std::string> gather_object(ProcessGroup& group, std::span<const std::string> mine) {
  const auto of_ranks = group.all_gather_object(pack(mine));
  std::vector<std::string> all;
  for (std::size_t rank = 0; rank < of_ranks.size(); ++rank)
    unpack(of_ranks[rank], static_cast<int>(rank), all);
  return all;
}

std::vector<std::string> broadcast_object_list(ProcessGroup& group,
                                               std::span<const std::string> mine, int from) {
  std::vector<std::string> list;
  unpack(group.broadcast_object(group.rank() == from ? pack(mine) : std::string{}, from), from,
         list);
  return list;
}

HostTensor first_of(const TensorView& tensor, std::size_t count) {
  TensorView part = tensor;
  if (!part.shape.empty() && static_cast<std::size_t>(part.shape[0]) > count)
    part.shape[0] = static_cast<std::int64_t>(count);
  return copy_of(part);
}

bool Trigger::check(ProcessGroup& group) {
  std::int32_t raised = set_ ? 1 : 0;
  group.all_reduce(std::span{&raised, 1}, ReduceOp::max);
  if (raised == 0) return false;
  set_ = false;
  return true;
}

}  // namespace acc::runtime
