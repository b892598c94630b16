#pragma once

#include <acc/gradient_reducer.hpp>
#include <acc/parameter.hpp>
#include <acc/process_group.hpp>
#include <cstddef>
#include <span>
#include <vector>

namespace acc::runtime::training {

/// Position of a parameter in its bucket.
struct Slot {
  std::size_t parameter = 0;
  std::size_t offset = 0;  ///< elements
  std::size_t count = 0;   ///< elements
};

/// Gradients that are reduced in one call.
struct BucketMemory {
  std::vector<Slot> slots;
  std::size_t count = 0;  ///< elements, padding included; a multiple of the ranks
  DType wire_type = DType::f32;
  DType own_type = DType::f32;  ///< of parameters and gradients
  Device device;
  std::byte* wire = nullptr;  ///< registered memory, in the reducer's buffer

  [[nodiscard]] bool compressed() const noexcept { return wire_type != own_type; }
  [[nodiscard]] std::byte* at(std::size_t element) const noexcept {
    return wire + element * size_of(wire_type);
  }
  [[nodiscard]] std::size_t bytes() const noexcept { return count * size_of(wire_type); }
};

/// Offsets and sizes of the buckets; `wire` isn't set yet.
/// @param ranks  that a bucket must be divisible by.
[[nodiscard]] std::vector<BucketMemory> lay_out(std::span<const Parameter> parameters,
                                                std::span<const std::vector<std::size_t>> plan,
                                                Compression compression, int ranks);
/// One piece of registered memory for all buckets, zeroed. Collective.
[[nodiscard]] SharedBuffer allocate(std::span<BucketMemory> buckets, ProcessGroup& group,
                                    void* stream);

/// The part of `slot` that lies in elements [begin, end) of its bucket; count 0: none.
struct Overlap {
  std::size_t in_parameter = 0;  ///< offset, elements
  std::size_t in_bucket = 0;     ///< offset, elements
  std::size_t count = 0;
};
[[nodiscard]] Overlap overlap(const Slot& slot, std::size_t begin, std::size_t end) noexcept;

// Host memory, or CUDA memory in the order of a stream (a copy to host memory is done on return).
void fill(void* at, int byte, std::size_t bytes, const Device& device, void* stream);
void fill_zero(void* at, std::size_t bytes, const Device& device, void* stream);
void copy(void* to, const void* from, std::size_t bytes, const Device& device, void* stream);
/// @throws Error invalid_argument "clip_grad_norm: 'fc.weight' is on cuda:0, not in host memory"
void require_host(const Device& device, std::string_view what, std::string_view name);

}  // namespace acc::runtime::training
