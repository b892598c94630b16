#pragma once

#include "runtime/shm/peers.hpp"
#include "runtime/shm/pull.hpp"
#include "runtime/shm/regions.hpp"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace acc::runtime::shm {

/// The collectives over a segment, in three ways. Small: each rank copies its data into its slot
/// and arrives; when all have, each copies out what it needs: one synchronisation. Staged: the same
/// in chunks, staging the next while the last is processed. Direct: the buffers are in memory that
/// all ranks can access. The choice depends only on what all ranks know alike.
class Collectives {
 public:
  Collectives(Peers& peers, const Regions& regions);
  void run(ActiveCall& active);

 private:
  // A call in bytes.
  struct Work {
    ActiveCall& active;
    const Descriptor& what;
    const std::byte* send;
    std::byte* recv;
    std::size_t item;   ///< bytes of an element
    std::size_t bytes;  ///< of `count` elements
    [[nodiscard]] bool is(Operation operation) const noexcept {
      return what.operation == operation;
    }
    /// Elements of a rank: its own in the _v forms, else the same for all.
    [[nodiscard]] std::size_t count_of(int rank) const noexcept;
    [[nodiscard]] std::size_t bytes_of(int rank) const noexcept { return count_of(rank) * item; }
    [[nodiscard]] std::size_t offset_of(int rank) const noexcept;
    [[nodiscard]] std::size_t most_bytes() const noexcept;  ///< of any rank
    /// Bytes of all ranks' parts.
    [[nodiscard]] std::size_t whole_bytes(int ranks) const noexcept;
  };
  [[nodiscard]] std::size_t staged_bytes(const Work& work) const noexcept;
  [[nodiscard]] std::size_t small_limit(const Work& work) const noexcept;
  [[nodiscard]] bool arrives_first(const Work& work) noexcept;
  void alone(const Work& work);

  // collectives_small.cpp
  void small(const Work& work);
  void stage_small(const Work& work, std::byte* slot);
  void copy_out_small(const Work& work);

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
  /// Addresses of this rank's buffers, if this call can use them.
  struct Addresses {
    std::uint64_t send = 0;
    std::uint64_t recv = 0;
  };
  [[nodiscard]] Addresses addresses(const Work& work) noexcept;
  /// Continues once all have arrived and their buffers' addresses are known.
  void agreed(const Work& work);
  [[nodiscard]] bool all_registered(const Work& work) const noexcept;
  void registered(const Work& work);
  template <class Source, class Target>
  void reduce_slice(const Work& work, Source source, Target target);
  /// The trial of calls that can be pulled; nullptr: this one cannot.
  [[nodiscard]] PullTrial* trial(const Work& work) noexcept;
  [[nodiscard]] bool all_want_to_pull(const Work& work) const noexcept;
  bool pull(const Work& work);
  void meet(const Work& work);

  struct Span {
    std::size_t begin, end;
    [[nodiscard]] std::size_t size() const noexcept { return end - begin; }
  };
  /// The part of `count` elements that `rank` reduces; whole cache lines except the last.
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

/// memcpy that allows nullptr for 0 bytes, and equal addresses.
void copy_bytes(void* to, const void* from, std::size_t bytes) noexcept;

}  // namespace acc::runtime::shm
