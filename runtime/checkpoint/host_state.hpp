#pragma once

#include <acc/checkpoint.hpp>
#include <cstddef>
#include <memory>
#include <string>
#include <vector>

namespace acc::runtime::checkpoint {

/// Everything that one rank has to write, in host memory.
struct HostState {
  std::vector<StateTensor> tensors;
  std::string shared;    ///< JSON; empty: nothing to write
  std::string per_rank;  ///< JSON; empty: nothing to write
};

/// Extracts from the state what a rank has to write. Reuses the memory of its copies: fresh pages
/// cost more than copying.
class Snapshot {
 public:
  /// @param copy  copy host memory too, so that the caller may continue; device memory is always
  ///   copied, behind all work of the device. The result is good until the next call.
  /// @throws Error invalid_argument: a state that can't be written.
  [[nodiscard]] HostState take(const CheckpointState& state, int rank, bool copy);

 private:
  struct Copy {
    std::unique_ptr<std::byte[]> data;
    std::size_t bytes = 0;
  };
  [[nodiscard]] void* copy_of(const TensorView& view, std::size_t number);

  std::vector<Copy> copies_;
};

}  // namespace acc::runtime::checkpoint
