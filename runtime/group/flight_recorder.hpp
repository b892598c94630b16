#pragma once

#include "runtime/backend.hpp"
#include "runtime/group/ticks.hpp"

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace acc::runtime {

/// Lock-free record of a rank's last calls. One thread at a time begins calls (the caller of the
/// group), any thread ends and reads them: about 20 ns a call.
class FlightRecorder {
 public:
  static constexpr std::size_t kCalls = 2048;  ///< kept; 64 bytes each
  enum class State : std::uint8_t { queued, running, enqueued, done, failed };
  using Ticket = std::uint64_t;  ///< from 1

  struct Entry {
    Ticket ticket = 0;
    Descriptor what;  ///< without the digest
    int peer = -1;
    State state = State::queued;
    Clock::time_point begin;
    Clock::time_point end;  ///< of done, enqueued and failed
  };

  FlightRecorder();

  Ticket begin(const Descriptor& what, int peer, State state) noexcept {
    const Ticket ticket = next_.load(std::memory_order_relaxed);
    Slot& slot = slots_[ticket % kCalls];
    // Release stores keep their order: a reader that finds the same ticket before and after has
    // read one call. (On x86 they are plain ones.)
    slot.ticket.store(0, std::memory_order_relaxed);
    slot.sequence.store(what.sequence, std::memory_order_release);
    slot.count.store(what.count, std::memory_order_release);
    slot.kinds.store(pack(what), std::memory_order_release);
    slot.peer.store(peer, std::memory_order_release);
    slot.begin.store(ticks::now(), std::memory_order_release);
    slot.state.store(state, std::memory_order_release);
    slot.ticket.store(ticket, std::memory_order_release);
    next_.store(ticket + 1, std::memory_order_release);
    return ticket;
  }
  /// A queued call starts to run. No effect if its slot has been reused.
  void run(Ticket ticket) noexcept { change(ticket, State::running); }
  void end(Ticket ticket, State state) noexcept { change(ticket, state); }

  /// Oldest first.
  [[nodiscard]] std::vector<Entry> entries() const;
  /// The oldest call that is being carried out.
  [[nodiscard]] std::optional<Entry> oldest_running() const;
  [[nodiscard]] std::uint64_t calls() const noexcept {
    return next_.load(std::memory_order_acquire) - 1;
  }

 private:
  struct alignas(64) Slot {
    std::atomic<Ticket> ticket;  // 0: being written
    std::atomic<std::uint64_t> sequence;
    std::atomic<std::uint64_t> count;
    std::atomic<std::uint64_t> kinds;
    std::atomic<std::uint64_t> begin;
    std::atomic<std::uint64_t> end;
    std::atomic<std::int32_t> peer;
    std::atomic<State> state;
  };
  static_assert(sizeof(Slot) == 64);

  static std::uint64_t pack(const Descriptor& what) noexcept {
    return static_cast<std::uint64_t>(static_cast<std::uint32_t>(what.root)) << 32 |
           static_cast<std::uint64_t>(what.within) << 24 |
           static_cast<std::uint64_t>(what.operation) << 16 |
           static_cast<std::uint64_t>(what.dtype) << 8 | static_cast<std::uint64_t>(what.reduce);
  }
  void change(Ticket ticket, State state) noexcept {
    Slot& slot = slots_[ticket % kCalls];
    if (slot.ticket.load(std::memory_order_relaxed) != ticket) return;
    (state == State::running ? slot.begin : slot.end)
        .store(ticks::now(), std::memory_order_release);
    slot.state.store(state, std::memory_order_release);
  }
  [[nodiscard]] std::optional<Entry> read(const Slot& slot, const ticks::Scale& scale) const;

  struct Freeing {
    void operator()(Slot* slots) const noexcept;
  };
  ticks::Scale::Mark made_;
  // Zeroed by the kernel: a group of few calls touches few pages.
  std::unique_ptr<Slot[], Freeing> slots_;
  std::atomic<Ticket> next_{1};
};

/// "queued", "running", …
[[nodiscard]] std::string_view to_string(FlightRecorder::State state) noexcept;
/// One line of JSON without its newline; times in nanoseconds of CLOCK_MONOTONIC, which the
/// processes of a host share.
[[nodiscard]] std::string to_json(const FlightRecorder::Entry& entry, std::string_view group,
                                  int rank);
/// All entries, each on a line with its newline, oldest first.
[[nodiscard]] std::string to_json_lines(const FlightRecorder& record, std::string_view group,
                                        int rank);

}  // namespace acc::runtime
