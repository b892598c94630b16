#include "runtime/backend.hpp"
#include "runtime/group/group.hpp"
#include "runtime/with_type.hpp"

#include <acc/cuda.hpp>
#include <acc/error.hpp>
#include <acc/operations.hpp>
#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstring>
#include <limits>
#include <optional>

namespace acc::runtime {

namespace {

bool on_device(const ConstTensorView& tensor) { return tensor.device.kind == Device::Kind::cuda; }

/// In host memory. For a tensor in device memory: its contents once the legacy stream is done.
HostTensor copy_of(const ConstTensorView& tensor) {
  HostTensor copy{tensor.dtype, tensor.shape};
  if (tensor.bytes() == 0) return copy;
  if (on_device(tensor))
    acc::cuda::copy(copy.bytes().data(), tensor.data, tensor.bytes());
  else
    std::memcpy(copy.bytes().data(), tensor.data, tensor.bytes());
  return copy;
}

/// Is there device memory in this call, and a group that accepts it? Then only the result is copied
/// to the host.
bool stays_on_device(const ProcessGroup& group, const ConstTensorView& tensor) {
  return on_device(tensor) && group.device() == tensor.device && tensor.count() > 0;
}

/// call(buffer) fills device memory of the bytes of `result`, in the order of the legacy stream.
template <class Call>
void by_device_memory(HostTensor& result, const Call& call) {
  const acc::cuda::DeviceBuffer buffer{result.bytes().size()};
  call(buffer.data());
  acc::cuda::copy(result.bytes().data(), buffer.data(), result.bytes().size());
}

ReduceOp op_of(Reduction how) noexcept {
  switch (how) {
    case Reduction::mean:
      return ReduceOp::avg;
    case Reduction::max:
      return ReduceOp::max;
    case Reduction::min:
      return ReduceOp::min;
    default:
      return ReduceOp::sum;
  }
}

bool is_floating(DType type) noexcept {
  return type == DType::f16 || type == DType::bf16 || type == DType::f32 || type == DType::f64;
}

template <class T>
void put(std::span<std::byte> element, T value) {
  std::memcpy(element.data(), &value, sizeof value);
}

[[noreturn]] void refuse_fill(DType type, double value) {
  throw Error{ErrorCode::invalid_argument, "pad_across_processes: a tensor of " +
                                               std::string{to_string(type)} +
                                               " can't be filled with " + std::to_string(value)};
}

template <class T>
void put_integer(std::span<std::byte> element, double value) {
  // The upper bound is compared as a power of two: the greatest T itself may have no double.
  if (!(value >= static_cast<double>(std::numeric_limits<T>::min())) ||
      !(value < std::ldexp(1.0, std::numeric_limits<T>::digits)) || value != std::trunc(value))
    refuse_fill(dtype_of<T>, value);
  put(element, static_cast<T>(value));
}

template <class T>
void put_floating(std::span<std::byte> element, double value) {
  const auto converted = element_from<T>(value);
  if (std::isfinite(value) && !std::isfinite(element_to_double(converted)))
    refuse_fill(dtype_of<T>, value);
  put(element, converted);
}

/// The bytes of one element.
std::vector<std::byte> element_of(DType type, double value) {
  std::vector<std::byte> bytes(size_of(type));
  with_type(type, [&](auto zero) {
    using T = decltype(zero);
    if constexpr (std::is_integral_v<T>)
      put_integer<T>(bytes, value);
    else
      put_floating<T>(bytes, value);
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

/// The type and the shape of a tensor as ranks compare them: of the shape its first dimensions, and
/// how many there are. Eight words, sent at once.
struct Form {
  static constexpr std::size_t kCompared = 7;
  std::int32_t dtype = 0;
  std::int32_t dimensions = 0;
  std::array<std::int64_t, kCompared> extents{};

  Form() = default;
  explicit Form(const ConstTensorView& tensor)
      : dtype{static_cast<std::int32_t>(tensor.dtype)},
        dimensions{static_cast<std::int32_t>(tensor.shape.size())} {
    std::copy_n(tensor.shape.begin(), std::min(tensor.shape.size(), kCompared), extents.begin());
  }
  friend bool operator==(const Form&, const Form&) = default;
  [[nodiscard]] std::string words() const {
    const auto all = static_cast<std::size_t>(dimensions);
    std::string text{to_string(static_cast<DType>(dtype))};
    text += " " + to_string(Shape{extents.begin(), extents.begin() + std::min(all, kCompared)});
    return all <= kCompared ? text : text + " of " + std::to_string(all) + " dimensions";
  }
};

/// Of calls whose result has a type and a shape that follow from this rank's: [2, 3] and [3, 2] are
/// as many elements, f64 and i64 as many bytes, and each rank would read them in its own way.
void require_same_form(ProcessGroup& group, const ConstTensorView& mine, const char* operation) {
  if (!group.impl().options().check.value_or(false)) return;
  constexpr std::size_t kWords = sizeof(Form) / sizeof(std::int64_t);
  const Form own{mine};
  std::vector<Form> all(static_cast<std::size_t>(group.size()));
  group.all_gather(&own, all.data(), kWords, DType::i64);
  const auto other = std::ranges::find_if(all, [&](const Form& form) { return form != all[0]; });
  if (other == all.end()) return;
  std::vector<int> others;
  for (std::size_t rank = 1; rank < all.size(); ++rank)
    if (all[rank] == *other) others.push_back(static_cast<int>(rank));
  const bool same_type = other->dtype == all[0].dtype;
  throw Error{ErrorCode::mismatch,
              std::string{operation} + ": the ranks have tensors of different " +
                  (same_type ? "shapes" : "types") + ": rank 0 has " + all[0].words() + ", " +
                  describe_ranks(others) + " " + have(others) + " " + other->words() +
                  (same_type ? "; pad_across_processes makes them alike" : ""),
              others, operation};
}

}  // namespace

Reduction parse_reduction(std::string_view word) {
  if (word == "none") return Reduction::none;
  if (word == "sum") return Reduction::sum;
  if (word == "mean") return Reduction::mean;
  throw Error{ErrorCode::invalid_argument,
              "'" + std::string{word} + "' is not a reduction: it is none, sum or mean"};
}

HostTensor gather(ProcessGroup& group, const ConstTensorView& mine) {
  const InUserCall within{UserCall::gather};
  detail::require_countable(mine.dtype, mine.shape);
  if (group.size() == 1) return copy_of(mine);
  require_same_form(group, mine, "gather");
  Shape shape = mine.shape;
  if (shape.empty()) {
    shape = {group.size()};
  } else if (__builtin_mul_overflow(shape[0], std::int64_t{group.size()}, &shape[0])) {
    throw Error{ErrorCode::invalid_argument, "gather: the tensors of all ranks, " +
                                                 to_string(mine.shape) +
                                                 " each, are of more elements than can be counted"};
  }
  HostTensor all{mine.dtype, std::move(shape)};
  std::optional<HostTensor> copy;
  const auto gather_to = [&](const void* from, void* to) {
    group.all_gather(from, to, mine.count(), mine.dtype);
  };
  if (stays_on_device(group, mine))
    by_device_memory(all, [&](void* to) { gather_to(mine.data, to); });
  else
    gather_to(on_device(mine) ? copy.emplace(copy_of(mine)).bytes().data() : mine.data,
              all.bytes().data());
  return all;
}

HostTensor pad_across_processes(ProcessGroup& group, const ConstTensorView& given, int dim,
                                double fill, bool fill_first) {
  const InUserCall within{UserCall::pad_across_processes};
  detail::require_countable(given.dtype, given.shape);
  if (on_device(given)) {
    const HostTensor copy = copy_of(given);
    return pad_across_processes(group, copy.view(), dim, fill, fill_first);
  }
  const ConstTensorView& mine = given;
  const int dims = static_cast<int>(mine.shape.size());
  if (dim >= dims || dim < -dims) return copy_of(mine);
  const auto axis = static_cast<std::size_t>(dim < 0 ? dim + dims : dim);
  // Before anything is sent, so that an invalid fill fails on all ranks alike.
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

HostTensor reduce(ProcessGroup& group, const ConstTensorView& mine, Reduction how) {
  const InUserCall within{UserCall::reduce};
  detail::require_countable(mine.dtype, mine.shape);
  if (group.size() == 1) return copy_of(mine);
  if (how == Reduction::mean && !is_floating(mine.dtype)) {
    throw Error{ErrorCode::invalid_argument,
                "reduce: the mean of " + std::string{to_string(mine.dtype)} +
                    " tensors is not a whole number: sum them, or use a floating type"};
  }
  if (stays_on_device(group, mine)) {
    HostTensor result{mine.dtype, mine.shape};
    by_device_memory(result, [&](void* to) {
      group.all_reduce(mine.data, to, mine.count(), mine.dtype, op_of(how));
    });
    return result;
  }
  HostTensor result = copy_of(mine);
  group.all_reduce(result.bytes().data(), result.bytes().data(), result.count(), result.dtype(),
                   op_of(how));
  return result;
}

HostTensor broadcast(ProcessGroup& group, const ConstTensorView& mine, int from) {
  const InUserCall within{UserCall::broadcast};
  HostTensor result = copy_of(mine);
  group.broadcast(result.bytes().data(), result.count(), result.dtype(), from);
  return result;
}

std::vector<std::string> gather_object(ProcessGroup& group, std::span<const std::string> mine) {
  const InUserCall within{UserCall::gather_object};
  const auto of_ranks = group.all_gather_object(pack(mine));
  std::vector<std::string> all;
  for (std::size_t rank = 0; rank < of_ranks.size(); ++rank)
    unpack(of_ranks[rank], static_cast<int>(rank), all);
  return all;
}

std::vector<std::string> broadcast_object_list(ProcessGroup& group,
                                               std::span<const std::string> mine, int from) {
  const InUserCall within{UserCall::broadcast_object_list};
  std::vector<std::string> list;
  unpack(group.broadcast_object(group.rank() == from ? pack(mine) : std::string{}, from), from,
         list);
  return list;
}

HostTensor first_of(const ConstTensorView& tensor, std::size_t count) {
  detail::require_countable(tensor.dtype, tensor.shape);
  ConstTensorView part = tensor;
  if (!part.shape.empty() && static_cast<std::size_t>(part.shape[0]) > count)
    part.shape[0] = static_cast<std::int64_t>(count);
  return copy_of(part);
}

bool Trigger::check(ProcessGroup& group) {
  const InUserCall within{UserCall::check_trigger};
  std::int32_t raised = set_ ? 1 : 0;
  group.all_reduce(std::span{&raised, 1}, ReduceOp::max);
  if (raised == 0) return false;
  set_ = false;
  return true;
}

}  // namespace acc::runtime
