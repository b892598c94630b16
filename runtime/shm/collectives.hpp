#pragma once

#include "runtime/shm/peers.hpp"
#include "runtime/shm/pull.hpp"
#include "runtime/shm/regions.hpp"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace acc::runtime::shm {

/// The collectives over a segment, in three ways. Small: each rank lays what it has into its slot
/// and arrives; when all have, each takes what it needs: one synchronisation. Staged: the same in
/// chunks, the next one laid in while the last is worked on. Direct: the buffers are in memory that
/// all can reach. Which way depends on what all ranks know alike.
class Collectives {
 public:
  Collectives(Peers& peers, const Regions& regions);
  void run(Turn& turn);

 private:
  // What a call means in bytes.
  struct Work {
    Turn& turn;
    const Descriptor& what;
    const std::byte* send;
    std::byte* recv;
    std::size_t item;   ///< bytes of an element
    std::size_t bytes;  ///< of `count` elements
    [[nodiscard]] bool is(Operation operation) const noexcept {
      return what.operation == operation;
    }
    /// Of the _v forms each rank's; else all are the same.
    [[nodiscard]] std::size_t count_of(int rank) const noexcept;
    [[nodiscard]] std::size_t bytes_of(int rank) const noexcept { return count_of(rank) * item; }
    [[nodiscard]] std::size_t offset_of(int rank) const noexcept;
    [[nodiscard]] std::size_t most_bytes() const noexcept;  ///< of any rank
    /// Of all ranks' parts together.
    [[nodiscard]] std::size_t whole_bytes(int ranks) const noexcept;
  };
  [[nodiscard]] std::size_t staged_bytes(const Work& work) const noexcept;
  [[nodiscard]] std::size_t small_limit(const Work& work) const noexcept;
  [[nodiscard]] bool arrives_first(const Work& work) noexcept;
  void alone(const Work& work);

  // collectives_small.cpp
  void small(const Work& work);
  void lay_in_small(const Work& work, std::byte* slot);
  void take_small(const Work& work);

  // collectives_staged.cpp
  void staged(const Work& work, bool has_arrived);
  template <class In, class Out>
  void pipeline(const Work& work, std::size_t chunks, bool has_arrived, In in, Out out);
  [[nodiscard]] std::size_t chunk_bytes(std::size_t whole) const noexcept;
  [[nodiscard]] std::size_t piece_bytes(std::size_t whole) const noexcept;
  void await_free(const Work& work, std::size_t chunk, std::uint32_t number);
  void all_reduce(const Work& work, bool has_arrived);
  void reduce(const Work& work, bool has_arrived);
  void reduce_slices(const Work& work, bool has_arrived, bool takes);
  void reduce_scatter(const Work& work, bool has_arrived);
  void all_gather(const Work& work, bool has_arrived);
  void gather(const Work& work, bool has_arrived);
  void scatter(const Work& work, bool has_arrived);
  void all_to_all(const Work& work, bool has_arrived);
  void all_to_all_v(const Work& work);
  void compare_lengths(const Work& work, std::uint32_t chunk);
  void broadcast(const Work& work, bool has_arrived);

  // collectives_direct.cpp
  /// Where this rank's buffers are, if that is worth telling for this call.
  struct Places {
    std::uint64_t send = 0;
    std::uint64_t recv = 0;
  };
  [[nodiscard]] Places places(const Work& work) noexcept;
  /// All have arrived, and it isn't known yet where their buffers are.
  void agreed(const Work& work);
  [[nodiscard]] bool all_registered(const Work& work) const noexcept;
  void registered(const Work& work);
  template <class Source, class Target>
  void reduce_slice(const Work& work, Source source, Target target);
  /// Of calls that might be pulled; nullptr: this one may not.
  [[nodiscard]] PullTrial* trial(const Work& work) noexcept;
  [[nodiscard]] bool all_want_to_pull(const Work& work) const noexcept;
  bool pull(const Work& work);
  void meet(const Work& work);

  struct Span {
    std::size_t begin, end;
    [[nodiscard]] std::size_t size() const noexcept { return end - begin; }
  };
  /// The part of `count` elements that is rank's to reduce; whole cache lines but for the last.
  [[nodiscard]] Span slice(std::size_t count, std::size_t item, int rank) const noexcept;

  Peers& peers_;
  const Regions& regions_;
  const Segment& segment_;
  int rank_;
  int size_;
  std::uint32_t chunk_number_ = 0;    ///< of the last chunk; the same on all ranks
  std::uint32_t meeting_number_ = 0;  ///< likewise
  std::vector<const void*> inputs_;   ///< of a reduction, by rank
  PullTrial broadcast_trial_;
  PullTrial all_gather_trial_;
};

/// Nothing at all may be at nullptr, and a buffer may be its own destination.
void copy_bytes(void* to, const void* from, std::size_t bytes) noexcept;

}  // namespace acc::runtime::shm
