#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

/// Memory that the workers of a round share with their agent: each writes its heartbeats into a
/// slot of its own, the agent reads them. A heartbeat is a few stores, without a system call.
/// docs/worker-socket.md describes the bytes, for writers in other languages.
namespace acc::heartbeat {

inline constexpr std::string_view kMagic = "ACCBEAT1";
inline constexpr std::uint32_t kVersion = 1;
/// The first heartbeat may come before the first step, which also compiles, allocates and connects.
inline constexpr std::uint64_t kFirstBeats = 2;
inline constexpr std::size_t kSectionName = 56;  ///< bytes, with at least one zero at the end

struct Header {
  char magic[8];
  std::uint32_t version;
  std::uint32_t slots;
  std::uint32_t slot_bytes;
  std::uint32_t first_slot;  ///< bytes from the beginning of the page
  std::uint64_t round;
  char unused[32];
};
static_assert(sizeof(Header) == 64);

/// One worker's. Written by that worker alone, in whole words; zeroed when a round begins, and by a
/// program of the worker that takes it over from another one.
struct alignas(64) Slot {
  // ---- one cache line for what each heartbeat changes ----
  std::atomic<std::uint64_t> beats;    ///< heartbeats so far; 0: none yet
  std::atomic<std::uint64_t> time_ns;  ///< CLOCK_MONOTONIC at the last one
  std::atomic<std::uint64_t> step;
  std::atomic<std::uint64_t> checkpoints;  ///< complete ones so far
  std::atomic<std::uint64_t> checkpoint_step;
  /// The runtime's last collective: number << 9 | operation << 1 | 1 while it is inside.
  std::atomic<std::uint64_t> collective;
  std::atomic<std::uint32_t> pid;  ///< of the process that writes; in a container another number
  /// A signal that makes the process write the stacks of its Python threads …
  std::atomic<std::uint32_t> stacks_signal;  ///< … 0: none
  std::atomic<std::uint64_t> unused_of_line;
  // ---- changed rarely ----
  std::atomic<std::uint64_t> edition;           ///< of the section's fields; odd: being changed
  std::atomic<std::uint64_t> section_since_ns;  ///< 0: in no section
  std::atomic<std::uint64_t> section_limit_ms;  ///< 0: it may take any time
  std::atomic<char> section[kSectionName];
  std::atomic<std::uint32_t> stacks_fd;  ///< … to this descriptor of its own
  /// 1: a call of the runtime failed here as another rank had ended or aborted. What this worker
  /// fails with from then on follows from that.
  std::atomic<std::uint32_t> peer_failed;
  std::atomic<char> unused[104];
};
static_assert(sizeof(Slot) == 256 && offsetof(Slot, edition) == 64 &&
              offsetof(Slot, section) == 88 && offsetof(Slot, stacks_fd) == 144 &&
              offsetof(Slot, peer_failed) == 148);
static_assert(std::atomic<std::uint64_t>::is_always_lock_free);

[[nodiscard]] constexpr std::size_t page_bytes(std::uint32_t slots) {
  return sizeof(Header) + slots * sizeof(Slot);
}
[[nodiscard]] constexpr std::size_t slot_offset(std::uint32_t slot) {
  return sizeof(Header) + slot * sizeof(Slot);
}

/// The longest limit of a section that is read, in milliseconds: with more, times of a clock in
/// nanoseconds would overflow. Writers have their own limits, or none.
inline constexpr std::uint64_t kLongestSectionMs = 100ULL * 365 * 24 * 60 * 60 * 1000;

struct Collective {
  std::uint64_t sequence = 0;  ///< 0: none yet
  std::uint8_t operation = 0;  ///< as runtime::Operation
  bool is_inside = false;
  friend bool operator==(const Collective&, const Collective&) = default;
};
[[nodiscard]] constexpr std::uint64_t pack(const Collective& c) {
  return c.sequence << 9U | static_cast<std::uint64_t>(c.operation) << 1U | (c.is_inside ? 1U : 0U);
}
[[nodiscard]] constexpr Collective unpack(std::uint64_t word) {
  return {word >> 9U, static_cast<std::uint8_t>(word >> 1U & 0xffU), (word & 1U) != 0};
}
/// "all_reduce"; as runtime::to_string(Operation).
[[nodiscard]] std::string_view operation_name(std::uint8_t operation);

/// A slot as it was at one moment.
struct Beat {
  std::uint64_t beats = 0;
  std::uint64_t time_ns = 0;
  std::uint64_t step = 0;
  std::uint64_t checkpoints = 0;
  std::uint64_t checkpoint_step = 0;
  Collective collective;
  std::uint32_t pid = 0;
  std::uint32_t stacks_signal = 0;
  std::uint32_t stacks_fd = 0;
  std::uint64_t section_since_ns = 0;
  std::uint64_t section_limit_ms = 0;  ///< at most kLongestSectionMs
  std::string section;  ///< of the innermost one; printable
  bool peer_failed = false;
  friend bool operator==(const Beat&, const Beat&) = default;
};
[[nodiscard]] Beat read(const Slot& slot);

/// CLOCK_MONOTONIC to some milliseconds, by a few nanoseconds of work.
[[nodiscard]] std::uint64_t coarse_now_ns() noexcept;

inline void write_beat(Slot& slot, std::uint64_t step) noexcept {
  constexpr auto kRelaxed = std::memory_order_relaxed;
  slot.step.store(step, kRelaxed);
  slot.time_ns.store(coarse_now_ns(), kRelaxed);
  // Two threads that beat at once may count as one: no harm, and no locked instruction.
  slot.beats.store(slot.beats.load(kRelaxed) + 1, std::memory_order_release);
}
void write_checkpoint(Slot& slot, std::uint64_t step) noexcept;
/// Also a sign of life, without a step. `since_ns` 0: the outermost section has ended.
void write_section(Slot& slot, std::string_view name, std::uint64_t since_ns,
                   std::uint64_t limit_ms) noexcept;

/// Ends what another program wrote into the slot, but for its checkpoints, and puts this pid there:
/// a reader that finds it finds nothing older. From then on the slot is that process's.
void claim(Slot& slot, std::uint32_t pid) noexcept;
/// Where a program that had the slot has ended: as claim(), for nobody. Not if another one has it.
void release(Slot& slot, std::uint32_t pid) noexcept;

/// The slot that `variable` (ACC_HEARTBEAT_PAGE, "PATH:OFFSET") names, mapped for the rest of this
/// process's life; null: there is none, or it can't be used.
[[nodiscard]] Slot* map_slot(std::string_view variable);

}  // namespace acc::heartbeat
