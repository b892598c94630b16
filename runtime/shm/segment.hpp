#pragma once

#include "common/unique_fd.hpp"
#include "runtime/backend.hpp"
#include "runtime/shm/waiting.hpp"

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

/// The memory that the ranks of a group share on one node. It begins as zeroes, and zeroes mean
/// "nobody has come yet", so no rank has to go first.
namespace acc::runtime::shm {

inline constexpr int kMaxRanks = 512;
inline constexpr std::size_t kLine = 64;
inline constexpr std::size_t kTwoLines = 128;  ///< the processor fetches them in pairs

inline constexpr std::size_t kPage = 4096;
[[nodiscard]] constexpr std::size_t page_up(std::size_t bytes) {
  return (bytes + kPage - 1) / kPage * kPage;
}

/// What a rank says when it comes to a call: one cache line, so that the one fetch that brings the
/// flag brings all. There are two of them by turns: who has come to call k has finished with k - 1,
/// so nobody still reads what was said at k - 2.
struct alignas(kLine) Arrival {
  Word word;
  std::uint64_t send_at;  ///< registered buffers: region and offset; pulling: an address; else 0
  std::uint64_t recv_at;
  Descriptor what;
  std::uint64_t unused;
};
static_assert(sizeof(Arrival) == kLine);

enum class Presence : std::uint32_t {
  absent,  ///< it hasn't come yet
  here,
  left,  ///< its backend was destroyed in good order
  gone,  ///< its process ended without
};

/// What a rank says to the others; only itself writes it, but for `presence` of a dead one.
struct alignas(kTwoLines) Place {
  std::array<Arrival, 2> arrivals;
  alignas(kTwoLines) Word staged;   ///< the last chunk that it laid into its slot
  alignas(kTwoLines) Word reduced;  ///< the last chunk of which it has reduced its slice
  alignas(kTwoLines) Word taken;    ///< the last chunk that it needs no more of anybody
  alignas(kTwoLines) Word met;      ///< meetings at the end of calls that stage nothing
  alignas(kTwoLines) std::atomic<std::uint32_t> completed;  ///< collectives, by number
  std::atomic<std::uint32_t> pull_failed;  ///< the last collective in which it could not read
  std::atomic<Presence> presence;
  std::atomic<std::uint64_t> probe;  ///< where its process has kProbeValue
  /// Where its threads sleep, as the offset of the word; 0: they don't. A rank may be in a send and
  /// in something else at once.
  std::array<std::atomic<std::uint64_t>, 2> sleeps_at;
  std::array<std::atomic<std::uint64_t>, 16> cpus;  ///< that it may run on
};

/// Bytes on their way from one rank to another: a ring of cells.
struct alignas(kTwoLines) Pair {
  Word written;                  ///< cells, by the sender
  alignas(kTwoLines) Word read;  ///< cells, by the receiver
};

/// Why the group is broken. Written once, by the first to find out.
struct Cause {
  ErrorCode code;
  Descriptor what;       ///< the call in which it was found; Operation::none: outside of any
  std::int32_t culprit;  ///< whose process ended, as an index; -1: none
  std::array<std::uint64_t, kMaxRanks / 64> ranks;  ///< to blame, as bits
  std::array<char, 2048> text;
};

enum class Health : std::uint32_t { well, breaking, broken };

struct alignas(kTwoLines) Header {
  std::atomic<Health> health;
  alignas(kTwoLines) Cause cause;
};

/// How the segment is divided; the same on every rank, as it depends on their number alone.
struct Layout {
  explicit Layout(int ranks) noexcept;

  int ranks;
  std::size_t chunk;  ///< bytes that are staged at a time; two slots of it for each rank
  std::size_t small;  ///< bytes that go along with the arrival; two slots of it for each rank
  std::size_t cell;   ///< of the rings between pairs
  static constexpr std::uint32_t kCells = 4;
  std::size_t places, smalls, chunks, pairs, cells, bytes;  ///< offsets, and the whole
};

/// Memory that several processes have mapped; in one process it is mapped once, so that threads as
/// ranks share addresses (which is also what lets a thread sanitizer see them meet).
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
  Segment(UniqueFd memory, int ranks);

  [[nodiscard]] const Layout& layout() const noexcept { return layout_; }
  [[nodiscard]] Header& header() const noexcept { return *reinterpret_cast<Header*>(base_); }
  [[nodiscard]] Place& place(int rank) const noexcept {
    return reinterpret_cast<Place*>(base_ + layout_.places)[rank];
  }
  [[nodiscard]] std::byte* small(int rank, std::uint32_t turn) const noexcept {
    return base_ + layout_.smalls + (static_cast<std::size_t>(rank) * 2 + turn % 2) * layout_.small;
  }
  [[nodiscard]] std::byte* chunk(int rank, std::uint32_t turn) const noexcept {
    return base_ + layout_.chunks + (static_cast<std::size_t>(rank) * 2 + turn % 2) * layout_.chunk;
  }
  [[nodiscard]] Pair& pair(int from, int to) const noexcept {
    return reinterpret_cast<Pair*>(base_ + layout_.pairs)[index(from, to)];
  }
  [[nodiscard]] std::byte* cell(int from, int to, std::uint32_t number) const noexcept {
    return base_ + layout_.cells +
           (index(from, to) * Layout::kCells + number % Layout::kCells) * layout_.cell;
  }
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
