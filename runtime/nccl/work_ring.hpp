#pragma once

#include "runtime/backend.hpp"
#include "runtime/nccl/cuda_library.hpp"

#include <atomic>
#include <cstdint>
#include <mutex>
#include <optional>
#include <vector>

namespace acc::runtime::nccl {

/// The last calls of a communicator, with the events that say how far the device is with them. One
/// thread at a time writes; any thread asks. Calls are numbered by tickets from 1, and as all run
/// on one stream they are done in that order.
///
/// The device has begun a call when its inputs were ready (an event on the caller's stream, needed
/// anyway) and the call before it was done: that spares a third event a call.
class WorkRing {
 public:
  static constexpr std::size_t kSlots = 2048;  ///< as many can be under way, and are remembered

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
  /// Only when it isn't full. From here on the watchdog sees the call: before NCCL is called, as
  /// that may hang. `captured`: it goes into a CUDA graph, so that its events can't be asked.
  /// @return its events, to be recorded. @throws Error cuda: there is none to be had.
  Events begin(Entry entry, bool captured);
  /// The events of the last call are recorded. (Before, those of the slot's former call would
  /// answer for it.)
  void enqueued() noexcept { enqueued_.store(last(), std::memory_order_release); }
  /// The last call had no effect: forget it.
  void withdraw() noexcept { head_.fetch_sub(1, std::memory_order_release); }

  // -- anybody --
  [[nodiscard]] std::uint64_t last() const noexcept {
    return head_.load(std::memory_order_acquire);
  }
  [[nodiscard]] std::uint64_t last_done() const noexcept {
    return done_.load(std::memory_order_acquire);
  }
  /// The newest that the device has begun, as `advance` found it last.
  [[nodiscard]] std::uint64_t last_started() const noexcept {
    return started_.load(std::memory_order_acquire);
  }
  /// Asks the device about this one. @return success: done; not_ready; or what went wrong.
  cuda::Status ask(std::uint64_t ticket) noexcept;
  /// Asks about all that are under way. @return success, or what went wrong.
  cuda::Status advance() noexcept;
  /// What is remembered of a ticket.
  [[nodiscard]] std::optional<Entry> entry(std::uint64_t ticket) const;
  /// The events are left to the driver: the device may never get to them.
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
