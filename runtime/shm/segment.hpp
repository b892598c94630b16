#pragma once

#include "common/unique_fd.hpp"
#include "runtime/backend.hpp"
#include "runtime/shm/published.hpp"
#include "runtime/shm/waiting.hpp"

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

/// The memory that the ranks of a group share on one node. It starts zeroed, which means "no rank
/// has arrived", so none has to initialise it.
namespace acc::runtime::shm {

inline constexpr int kMaxRanks = 512;
inline constexpr std::size_t kLine = 64;
inline constexpr std::size_t kTwoLines = 128;  ///< the processor prefetches them in pairs

inline constexpr std::size_t kPage = 4096;
[[nodiscard]] constexpr std::size_t page_up(std::size_t bytes) {
  return (bytes + kPage - 1) / kPage * kPage;
}

/// Announcement of a call: one cache line, so that the fetch of the count brings everything. Two
/// alternate: a rank that has arrived at call k has finished k - 1, so the one of k - 2 is no
/// longer read.
struct alignas(kLine) Arrival {
  Word word;
  std::uint64_t send_at;  ///< registered buffers: region and offset; pulling: an address; else 0
  std::uint64_t recv_at;
  Descriptor what;
  std::uint64_t unused;
};
static_assert(sizeof(Arrival) == kLine);

enum class Presence : std::uint32_t {
  absent,  ///< it hasn't joined yet
  here,
  left,  ///< its backend was destroyed
  gone,  ///< its process ended without that
};

/// State that a rank publishes; written by itself only, except the `presence` of a dead rank.
struct alignas(kTwoLines) RankState {
  std::array<Arrival, 2> arrivals;
  alignas(kTwoLines) Word staged;  ///< the last chunk that it staged in its slot
  alignas(
      kTwoLines) Word processed;  ///< the last chunk of which it has reduced or exchanged its share
  alignas(kTwoLines) Word taken;  ///< the last chunk that it has copied out
  alignas(kTwoLines) Word met;    ///< barriers at the end of calls that stage nothing
  alignas(
      kTwoLines) std::atomic<std::uint32_t> completed;  ///< number of the last completed collective
  std::atomic<std::uint32_t> pull_failed;  ///< the last collective in which it could not read
  std::atomic<Presence> presence;
  std::atomic<std::uint64_t> probe;  ///< address of kProbeValue in its process
  /// Offsets of the words on which its threads sleep; 0: awake. A rank may be in a send and another
  /// call concurrently.
  std::array<std::atomic<std::uint64_t>, 2> sleeps_at;
  std::atomic<std::uint32_t> waits;  ///< its threads that wait for something other than a word
  std::array<std::atomic<std::uint64_t>, 16> cpus;         ///< that it may run on
  std::array<PublishedWait, 2> blocked_in;                 ///< by the lanes of ActiveCall
  alignas(kTwoLines) std::array<LastMessage, 2> messages;  ///< received, and sent
};

/// Ring of cells for messages from one rank to another.
struct alignas(kTwoLines) Pair {
  Word written;                  ///< cells, by the sender
  alignas(kTwoLines) Word read;  ///< cells, by the receiver
};

/// Why the group is broken. Written once, by the rank that breaks it first.
struct Cause {
  ErrorCode code;
  Descriptor what;       ///< the call in which it was detected; Operation::none: outside of any
  std::int32_t culprit;  ///< index of the rank whose process ended; -1: none
  std::uint32_t count;   ///< of `ranks`
  std::array<std::int32_t, kMaxRanks> ranks;  ///< to blame, as numbered in the group
  std::array<char, 16 * 1024> text;
};

enum class Health : std::uint32_t { healthy, breaking, broken };

struct alignas(kTwoLines) Header {
  std::atomic<Health> health;
  alignas(kTwoLines) Cause cause;
};

/// Layout of the segment; depends only on the number of ranks, so it is the same on all.
struct Layout {
  explicit Layout(int ranks) noexcept;
  /// For a group over several hosts: one buffer of `staging` bytes in place of slots and rings.
  [[nodiscard]] static Layout with_staging(int ranks, std::size_t staging) noexcept;

  int ranks;
  std::size_t chunk;  ///< bytes that are staged at a time; two slots of it for each rank
  std::size_t small;  ///< bytes sent along with an arrival; two slots of it for each rank
  std::size_t cell;   ///< of the rings between pairs
  static constexpr std::uint32_t kCells = 4;
  std::size_t states, smalls, chunks, pairs, cells, bytes;  ///< offsets, and the whole
  std::size_t staging = 0;                                  ///< offset
};

/// Shared memory, mapped once per process, so that threads as ranks share addresses (and a thread
/// sanitizer sees their synchronisation).
class Mapping {
 public:
  /// @throws Error system.
  static std::shared_ptr<Mapping> of(UniqueFd memory, std::size_t bytes);
  Mapping(void* data, std::size_t bytes) noexcept : data_{data}, bytes_{bytes} {}
  ~Mapping();
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  [[nodiscard]] std::byte* data() const noexcept { return static_cast<std::byte*>(data_); }
  [[nodiscard]] std::size_t bytes() const noexcept { return bytes_; }

 private:
  void* data_;
  std::size_t bytes_;
};

class Segment {
 public:
  Segment(UniqueFd memory, const Layout& layout);

  [[nodiscard]] const Layout& layout() const noexcept { return layout_; }
  [[nodiscard]] Header& header() const noexcept { return *reinterpret_cast<Header*>(base_); }
  [[nodiscard]] RankState& rank_state(int rank) const noexcept {
    return reinterpret_cast<RankState*>(base_ + layout_.states)[rank];
  }
  [[nodiscard]] std::byte* small(int rank, std::uint32_t slot) const noexcept {
    return base_ + layout_.smalls + (static_cast<std::size_t>(rank) * 2 + slot % 2) * layout_.small;
  }
  [[nodiscard]] std::byte* chunk(int rank, std::uint32_t slot) const noexcept {
    return base_ + layout_.chunks + (static_cast<std::size_t>(rank) * 2 + slot % 2) * layout_.chunk;
  }
  [[nodiscard]] Pair& pair(int from, int to) const noexcept {
    return reinterpret_cast<Pair*>(base_ + layout_.pairs)[index(from, to)];
  }
  [[nodiscard]] std::byte* cell(int from, int to, std::uint32_t number) const noexcept {
    return base_ + layout_.cells +
           (index(from, to) * Layout::kCells + number % Layout::kCells) * layout_.cell;
  }
  [[nodiscard]] std::byte* staging() const noexcept { return base_ + layout_.staging; }
  [[nodiscard]] std::uint64_t offset_of(const Word& word) const noexcept {
    return static_cast<std::uint64_t>(reinterpret_cast<const std::byte*>(&word) - base_);
  }
  [[nodiscard]] Word& word_at(std::uint64_t offset) const noexcept {
    return *reinterpret_cast<Word*>(base_ + offset);
  }

 private:
  [[nodiscard]] std::size_t index(int from, int to) const noexcept {
    return static_cast<std::size_t>(from) * static_cast<std::size_t>(layout_.ranks) +
           static_cast<std::size_t>(to);
  }
  Layout layout_;
  std::shared_ptr<Mapping> mapping_;
  std::byte* base_;
};

}  // namespace acc::runtime::shm
