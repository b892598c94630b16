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

/// A non-blocking ncclComm_t: every call may return "in progress" and is then polled, so that every
/// wait has a deadline. Its first failure breaks it for good.
class Communicator {
 public:
  struct Who {
    std::string name;  ///< of the group; also shown in NCCL's messages
    int rank = 0;
    int size = 1;
    int device = 0;
    Millis abort_limit{10'000};
  };
  Communicator(const Api& api, Who who) : api_{api}, who_{std::move(who)} {}
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  /// Connects to the other ranks, for the caller's current device.
  /// @param news  polled meanwhile: has another rank failed?
  /// @throws Error timed_out, nccl, or the news; it is then broken, and its abort has begun.
  void init(const UniqueId& id, std::optional<Clock::time_point> deadline, Millis limit,
            const std::function<std::optional<Error>()>& news);

  /// Calls NCCL with the communicator and waits while it answers "in progress". For calls in the
  /// ring the watchdog enforces the deadline, and a break ends the wait; others pass a deadline.
  /// @throws Error invalid_argument (no effect), nccl or timed_out (the caller must break it), the
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

  /// NCCL's own asynchronous error; nothing: none, or another thread is in a call at the moment.
  [[nodiscard]] std::optional<Error> async_error() noexcept;

  /// Breaks it, with this cause unless there is one already. Any thread; never blocks.
  /// @return true: this was the first cause
  bool fail(const Error& cause) noexcept;
  /// Starts the abort of a broken communicator, once. Ends the process if that takes too long.
  void begin_abort() noexcept;
  /// Waits for the end of the abort, at most for its limit.
  void await_abort() noexcept;

  /// Closes it by finalize and destroy, or by abort if the peers don't follow in time. Never
  /// throws.
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
  /// Held during a call of NCCL with the communicator; an abort ends such a call.
  std::mutex in_use_;
  Comm comm_ = nullptr;

  mutable std::mutex state_;  ///< of what follows
  Phase phase_ = Phase::idle;
  Deed due_ = Deed::nothing;  ///< abort, if not begun yet
  std::optional<Error> cause_;
  std::shared_future<void> abort_;
  std::atomic<bool> broken_{false};
};

}  // namespace acc::runtime::nccl
