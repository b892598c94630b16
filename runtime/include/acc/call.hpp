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

/// How a call of a ProcessGroup is made, and what it returns.
namespace acc::runtime {

using Millis = std::chrono::milliseconds;

enum class BackendKind : std::uint8_t {
  automatic,  ///< nccl where ACC_BACKEND says so or a CUDA device is this rank's, else cpu
  cpu,
  nccl,
};

struct GroupOptions {
  BackendKind backend = BackendKind::automatic;
  /// How long all ranks may take to join. 0: for ever. ACC_INIT_TIMEOUT (seconds, or "250ms").
  std::optional<Millis> init_timeout;  ///< default 300 s
  /// How long an operation may take. 0: for ever. ACC_COLLECTIVE_TIMEOUT.
  std::optional<Millis> timeout;  ///< default 1800 s on cpu, 600 s on nccl, as torch
  std::string name = "world";     ///< in messages
  /// Do all ranks call the same thing? By default on cpu, off on nccl. ACC_CHECK=0|1.
  std::optional<bool> check;
};

/// Of one call.
struct CallOptions {
  std::optional<Millis> timeout;  ///< default: the group's. 0: for ever
  /// cuda: the stream (cudaStream_t) it is ordered with; nullptr is the legacy stream.
  void* stream = nullptr;
};

/// A call that was begun. Its buffers belong to the group until it is done. Destroying an unwaited
/// Work neither waits nor cancels. Copies are handles of the same call.
class Work {
 public:
  Work() = default;
  /// @param limit  of this wait alone. 0: asks and doesn't wait; none: until the call itself ends,
  ///   which its own timeout bounds
  /// @throws Error what the call failed with, or timed_out after `limit`: then the call goes on,
  /// and
  ///   the group is as before
  void wait(std::optional<Millis> limit = std::nullopt) const;
  [[nodiscard]] bool done() const;  ///< also when it failed
  /// What it failed with; nullptr: not done yet, or well.
  [[nodiscard]] std::exception_ptr error() const;
  struct State;
  explicit Work(std::shared_ptr<State> state) : state_{std::move(state)} {}

 private:
  std::shared_ptr<State> state_;
};

/// Waits for all of them. @throws Error what the first of them that failed did, after all have
/// ended
void wait_all(std::span<const Work> works);

/// Memory that the other processes of this node can reach: a reduction of it needs no copy. The
/// same size is to be asked for on every rank (collective). Freed with its last handle.
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
using runtime::CallOptions;
using runtime::GroupOptions;
using runtime::SharedBuffer;
using runtime::Work;
}  // namespace acc
