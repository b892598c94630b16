#pragma once

#include <acc/checkpoint.hpp>
#include <cstddef>
#include <memory>
#include <string>
#include <vector>

namespace acc::runtime::checkpoint {

/// What one rank has to write, all of it in host memory.
struct HostState {
  std::vector<StateTensor> tensors;
  std::string shared;    ///< JSON; empty: nothing to write
  std::string per_rank;  ///< JSON; empty: nothing to write
};

/// Takes what a rank has to write out of its state. Keeps the memory of its copies for the next
/// time: fresh pages cost more than copying does.
class Snapshot {
 public:
  /// @param copy  host memory too, so that the caller may go on; memory of devices always is.
  /// The result is good until the next call.
  /// @throws Error invalid_argument: a state that can't be written.
  [[nodiscard]] HostState take(const CheckpointState& state, int rank, bool copy);

 private:
  struct Room {
    std::unique_ptr<std::byte[]> data;
    std::size_t bytes = 0;
  };
  [[nodiscard]] void* copy_of(const TensorView& view, std::size_t number);

  std::vector<Room> rooms_;
};

}  // namespace acc::runtime::checkpoint
