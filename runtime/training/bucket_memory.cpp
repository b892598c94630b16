#include "runtime/training/bucket_memory.hpp"

#include <acc/cuda.hpp>
#include <acc/error.hpp>
#include <algorithm>
#include <cstring>
#include <string>

namespace acc::runtime::training {
namespace {

constexpr std::size_t kAlignment = 64;  ///< bytes: a cache line, and the widest vector

std::size_t round_up(std::size_t value, std::size_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

DType wire_type_of(DType own, Compression compression) {
  if (own != DType::f32 && own != DType::f64) return own;
  switch (compression) {
    case Compression::fp16:
      return DType::f16;
    case Compression::bf16:
      return DType::bf16;
    case Compression::none:
      break;
  }
  return own;
}

}  // namespace

std::vector<BucketMemory> lay_out(std::span<const Parameter> parameters,
                                  std::span<const std::vector<std::size_t>> plan,
                                  Compression compression, int ranks) {
  std::vector<BucketMemory> buckets;
  buckets.reserve(plan.size());
  for (const auto& members : plan) {
    BucketMemory bucket;
    const TensorView& first = parameters[members.front()].value;
    bucket.own_type = first.dtype;
    bucket.wire_type = wire_type_of(first.dtype, compression);
    bucket.device = first.device;
    const std::size_t grain = kAlignment / size_of(bucket.wire_type);
    std::size_t end = 0;
    for (const std::size_t index : members) {
      const std::size_t count = parameters[index].value.count();
      bucket.slots.push_back({index, end, count});
      end = round_up(end + count, grain);
    }
    bucket.count = round_up(end, grain * static_cast<std::size_t>(ranks));
    buckets.push_back(std::move(bucket));
  }
  return buckets;
}

SharedBuffer allocate(std::span<BucketMemory> buckets, ProcessGroup& group, void* stream) {
  std::size_t bytes = 0;
  for (const BucketMemory& bucket : buckets) bytes += bucket.bytes();
  if (bytes == 0) return {};
  SharedBuffer memory = group.allocate_shared(bytes);
  auto* at = static_cast<std::byte*>(memory.data());
  for (BucketMemory& bucket : buckets) {
    bucket.wire = at;
    fill_zero(at, bucket.bytes(), bucket.device,
              stream);  // and first touch: by the rank that writes it
    at += bucket.bytes();
  }
  return memory;
}

Overlap overlap(const Slot& slot, std::size_t begin, std::size_t end) noexcept {
  const std::size_t from = std::max(begin, slot.offset);
  const std::size_t to = std::min(end, slot.offset + slot.count);
  if (from >= to) return {};
  return {from - slot.offset, from, to - from};
}

void fill(void* at, int byte, std::size_t bytes, const Device& device, void* stream) {
  if (bytes == 0) return;
  if (device.kind == Device::Kind::cuda) return cuda::fill_async(at, byte, bytes, stream);
  std::memset(at, byte, bytes);
}

void fill_zero(void* at, std::size_t bytes, const Device& device, void* stream) {
  fill(at, 0, bytes, device, stream);
}

void copy(void* to, const void* from, std::size_t bytes, const Device& device, void* stream) {
  if (bytes == 0) return;
  if (device.kind == Device::Kind::cuda) return cuda::copy_async(to, from, bytes, stream);
  std::memcpy(to, from, bytes);
}

void require_host(const Device& device, std::string_view what, std::string_view name) {
  if (device.kind == Device::Kind::cpu) return;
  throw Error{ErrorCode::invalid_argument, std::string{what} + ": " + std::string{name} +
                                               " is on " + to_string(device) +
                                               ", not in host memory"};
}

}  // namespace acc::runtime::training
