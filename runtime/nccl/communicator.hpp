#pragma once

#include "runtime/backend.hpp"
#include "runtime/nccl/communicator_state.hpp"
#include "runtime/nccl/library.hpp"

#include <acc/error.hpp>
#include <atomic>
#include <chrono>
#include <concepts>
#include <functional>
#include <future>
#include <mutex>
#include <optional>
#include <string>

namespace acc::runtime::nccl {

/// One ncclComm_t, always non-blocking: every call may return "in progress" and is polled then, so
/// that nothing waits without a deadline. Broken for good by its first failure.
class Communicator {
 public:
  struct Who {
    std::string name;  ///< of the group; NCCL shows it in its own messages, too
    int rank = 0;
    int size = 1;
    int device = 0;
    Millis abort_limit{10'000};
  };
  Communicator(const Api& api, Who who) : api_{api}, who_{std::move(who)} {}
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  /// Meets the other ranks. The caller's current device is the one that is used.
  /// @param news  asked now and then meanwhile: has another rank failed?
  /// @throws Error timed_out, nccl, or the news; broken then, and the abort has begun.
  void init(const UniqueId& id, std::optional<Clock::time_point> deadline, Millis limit,
            const std::function<std::optional<Error>()>& news);

  /// Calls NCCL with the communicator and, while it answers "in progress", waits until it is
  /// through. Calls that are in the ring have the watchdog for their deadline, and breaking ends
  /// the wait; others pass one.
  /// @throws Error invalid_argument (no effect), nccl or timed_out (the caller is to break it), the
  ///   first cause
  template <std::invocable<Comm> Function>
  void call(const char* name, Function&& function,
            Clock::time_point deadline = Clock::time_point::max()) {
    const Status status = [&] {
      const std::lock_guard lock{in_use_};
      throw_if_broken();
      return function(comm_);
    }();
    if (status != Status::success) [[unlikely]]
      settle(name, status, deadline);
  }

  /// What NCCL has found out by itself; nothing: it is well, or somebody else is in it just now.
  [[nodiscard]] std::optional<Error> async_error() noexcept;

  /// Breaks it, with this as the cause unless there is one. From any thread; never blocks.
  /// @return was it the first?
  bool fail(const Error& cause) noexcept;
  /// Begins the abort of a broken communicator, once. It ends the process if it takes too long.
  void begin_abort() noexcept;
  /// The abort has ended, or none is needed.
  [[nodiscard]] bool abort_is_over() const noexcept;
  /// Waits for that; bounded by the limit of the abort.
  void await_abort() noexcept;

  /// Ends it in peace: finalize, destroy; if the peers don't follow in time: abort. Never throws.
  void close(Millis limit) noexcept;

  [[nodiscard]] bool broken() const noexcept { return broken_.load(std::memory_order_acquire); }
  [[nodiscard]] std::optional<Error> cause() const;
  void throw_if_broken() const {
    if (broken()) [[unlikely]]
      throw_cause();
  }
  [[nodiscard]] Phase phase() const;
  [[nodiscard]] const Who& who() const noexcept { return who_; }
  [[nodiscard]] const Api& api() const noexcept { return api_; }

 private:
  void settle(const char* name, Status status, Clock::time_point deadline);
  Status poll() noexcept;
  Deed happens(Happening what) noexcept;
  [[noreturn]] void throw_cause() const;
  [[nodiscard]] std::string title() const;

  const Api& api_;
  const Who who_;
  /// Held while a call of NCCL runs with the communicator: an abort frees it.
  std::mutex in_use_;
  Comm comm_ = nullptr;

  mutable std::mutex state_;  ///< of what follows
  Phase phase_ = Phase::idle;
  Deed due_ = Deed::nothing;  ///< abort, when it hasn't begun yet
  std::optional<Error> cause_;
  std::shared_future<void> abort_;
  std::atomic<bool> broken_{false};
};

}  // namespace acc::runtime::nccl
