#pragma once

#include "runtime/backend.hpp"
#include "runtime/nccl/cuda_api.hpp"
#include "runtime/nccl/nccl_api.hpp"

/// Maps a Call to calls of NCCL.
namespace acc::runtime::nccl {

/// Several calls as one launch. Its sends and receives run concurrently, without which two ranks
/// that send to each other would deadlock.
class GroupScope {
 public:
  explicit GroupScope(const Api& api) : api_{api}, status_{api.group_start()} {
    open_ = status_ == Status::success;
  }
  /// An exception must not leave the group open: all later calls of the thread would queue up in
  /// it.
  ~GroupScope() {
    if (open_) (void)api_.group_end();
  }
  GroupScope(const GroupScope&) = delete;
  GroupScope& operator=(const GroupScope&) = delete;

  /// Keeps the first failure, after which nothing more is added.
  template <class Function>
  void add(Function&& function) {
    if (open_ && status_ == Status::success) status_ = function();
  }
  /// @return the first failure, else the result of ncclGroupEnd.
  Status end() {
    if (!open_) return status_;
    open_ = false;
    const auto ended = api_.group_end();
    return status_ != Status::success ? status_ : ended;
  }

 private:
  const Api& api_;
  Status status_;
  bool open_ = false;
};

struct Lane {
  const Api& nccl;
  const cuda::Api& cuda;
  Comm comm = nullptr;
  cuda::Stream stream = nullptr;
  int rank = 0;
  int size = 1;
  void* token = nullptr;  ///< 4 bytes of the device, for barriers
};

/// Enqueues the call. @throws Error cuda: a copy within the device was refused
[[nodiscard]] Status move(const Lane& lane, const Call& call);
/// "ncclAllReduce": for messages.
[[nodiscard]] const char* name_of(Operation operation) noexcept;

/// Bytes that a rank reads at call.send and writes at call.recv.
struct Extent {
  std::size_t send = 0;
  std::size_t recv = 0;
};
[[nodiscard]] Extent extent(const Call& call, int rank, int size) noexcept;

}  // namespace acc::runtime::nccl
