#pragma once

#include "runtime/backend.hpp"
#include "runtime/nccl/cuda_library.hpp"

#include <atomic>
#include <cstdint>
#include <mutex>
#include <optional>
#include <vector>

namespace acc::runtime::nccl {

/// The last calls of a communicator, with the events that show their progress on the device. One
/// thread at a time writes; any thread reads. Calls are numbered by tickets from 1, and complete in
/// that order, as all run on one stream.
///
/// A call counts as begun when its inputs are ready (an event on the caller's stream, needed
/// anyway) and the call before it is done, which saves a third event per call.
class WorkRing {
 public:
  static constexpr std::size_t kSlots =
      2048;  ///< calls that can be in progress, and are remembered

  struct Entry {
    std::uint64_t ticket = 0;
    Descriptor what{};
    int peer = -1;
    std::optional<Clock::time_point> deadline{};
    Millis limit{0};
  };
  struct Events {
    cuda::Event ready = nullptr;
    cuda::Event end = nullptr;
  };

  explicit WorkRing(const cuda::Api& api) : api_{api}, slots_(kSlots) {}
  ~WorkRing();
  WorkRing(const WorkRing&) = delete;
  WorkRing& operator=(const WorkRing&) = delete;

  // -- the writer --
  [[nodiscard]] bool full() const noexcept { return last() - last_done() >= kSlots; }
  /// Precondition: not full. From here on the watchdog sees the call: before NCCL is called, which
  /// may hang. `captured`: part of a CUDA graph, whose events can't be queried.
  /// @return its events, to be recorded. @throws Error cuda: none can be made.
  Events begin(Entry entry, bool captured);
  /// The events of the last call have been recorded. (Before that, they belong to the slot's former
  /// call.)
  void enqueued() noexcept { enqueued_.store(last(), std::memory_order_release); }
  /// Removes the last call, which had no effect.
  void withdraw() noexcept { head_.fetch_sub(1, std::memory_order_release); }

  // -- any thread --
  [[nodiscard]] std::uint64_t last() const noexcept {
    return head_.load(std::memory_order_acquire);
  }
  [[nodiscard]] std::uint64_t last_done() const noexcept {
    return done_.load(std::memory_order_acquire);
  }
  /// The newest call begun by the device, as of the last `advance`.
  [[nodiscard]] std::uint64_t last_started() const noexcept {
    return started_.load(std::memory_order_acquire);
  }
  /// Queries this call. @return success: done; not_ready; or its error.
  cuda::Status ask(std::uint64_t ticket) noexcept;
  /// Queries all calls in progress. @return success, or the first error.
  cuda::Status advance() noexcept;
  /// The entry of a ticket, if still remembered.
  [[nodiscard]] std::optional<Entry> entry(std::uint64_t ticket) const;
  /// Abandons the events to the driver: the device may never reach them.
  void leak_events() noexcept { leaked_ = true; }

 private:
  struct Slot {
    Entry entry;  ///< under words_
    std::atomic<bool> captured{false};
    Events events;  ///< made once, before their first ticket is published
  };
  [[nodiscard]] Slot& slot(std::uint64_t ticket) noexcept { return slots_[ticket % kSlots]; }
  cuda::Status query(std::uint64_t ticket) noexcept;
  static void raise(std::atomic<std::uint64_t>& mark, std::uint64_t to) noexcept;

  const cuda::Api& api_;
  std::vector<Slot> slots_;
  mutable std::mutex words_;
  std::atomic<std::uint64_t> head_{0};      ///< last one begun
  std::atomic<std::uint64_t> enqueued_{0};  ///< last one whose events are recorded
  std::atomic<std::uint64_t> started_{0};
  std::atomic<std::uint64_t> done_{0};
  bool leaked_ = false;
};

}  // namespace acc::runtime::nccl
