#pragma once

#include <acc/error.hpp>
#include <acc/types.hpp>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>

/// Options and results of calls of a ProcessGroup.
namespace acc::runtime {

using Millis = std::chrono::milliseconds;

enum class BackendKind : std::uint8_t {
  automatic,  ///< nccl if ACC_BACKEND says so or this rank has a CUDA device, else cpu
  cpu,
  nccl,
};

/// Time-outs: 0 means none. A negative one, as the rest of an expired deadline, is an error
/// (invalid_argument).
struct GroupOptions {
  BackendKind backend = BackendKind::automatic;
  /// Time for all ranks to join. 0: no limit. ACC_INIT_TIMEOUT (seconds, or "250ms").
  std::optional<Millis> init_timeout = {};  ///< default 300 s
  /// Time limit of an operation. 0: none. ACC_COLLECTIVE_TIMEOUT.
  std::optional<Millis> timeout = {};  ///< default 1800 s on cpu, 600 s on nccl, as torch
  /// In messages. The same on all ranks: a rank that forms its groups in another order is found by
  /// it (mismatch), so groups that are formed one after the other should have different names.
  std::string name = "world";
  /// Compare the calls of the ranks; the same on all of them (mismatch). Default: on for cpu, off
  /// for nccl. ACC_CHECK=0|1.
  std::optional<bool> check = {};
};

/// Options of one call. Time-outs as in GroupOptions.
struct CallOptions {
  std::optional<Millis> timeout = {};  ///< default: the group's. 0: none
  /// cuda: the stream (cudaStream_t) that orders the call; nullptr is the legacy stream.
  void* stream = nullptr;
  /// split, sub_group: of the new group, the same on all ranks; automatic: as of this one.
  BackendKind backend = BackendKind::automatic;
};

/// Handle of a started call. Its buffers belong to the group until it is done. Destroying an
/// unwaited Work neither waits nor cancels. Copies are handles of the same call.
class Work {
 public:
  Work() = default;
  /// @param limit  of this wait. 0: polls; none: until the call ends, which its own timeout bounds;
  ///   negative: invalid_argument
  /// @throws Error the failure of the call, or timed_out after `limit`: the call then continues,
  ///   and the group stays usable
  void wait(std::optional<Millis> limit = std::nullopt) const;
  [[nodiscard]] bool done() const;  ///< true also after a failure
  /// Its failure; nullptr: not done, or succeeded.
  [[nodiscard]] std::exception_ptr error() const;
  struct State;
  explicit Work(std::shared_ptr<State> state) : state_{std::move(state)} {}

 private:
  std::shared_ptr<State> state_;
};

/// Waits for all of them. @throws Error that of the first one that failed, after all have ended
void wait_all(std::span<const Work> works);

/// Memory that the other processes of this node can access: reducing it needs no copy. Allocation
/// is collective, with the same size on every rank. Freed with its last handle.
class SharedBuffer {
 public:
  SharedBuffer() = default;
  SharedBuffer(void* data, std::size_t bytes, std::shared_ptr<void> keep)
      : data_{data}, bytes_{bytes}, keep_{std::move(keep)} {}
  [[nodiscard]] void* data() const noexcept { return data_; }
  [[nodiscard]] std::size_t bytes() const noexcept { return bytes_; }
  template <Element T>
  [[nodiscard]] std::span<T> as() const noexcept {
    return {static_cast<T*>(data_), bytes_ / sizeof(T)};
  }

 private:
  void* data_ = nullptr;
  std::size_t bytes_ = 0;
  std::shared_ptr<void> keep_;
};

}  // namespace acc::runtime

namespace acc {
using runtime::BackendKind;
using runtime::CallOptions;
using runtime::GroupOptions;
using runtime::SharedBuffer;
using runtime::Work;
}  // namespace acc
